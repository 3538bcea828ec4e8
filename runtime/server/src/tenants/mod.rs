//! Tenants: authentication, granted data roots and quotas.
//!
//! The configured tenant has the token in the host's token file. All other tenants are records of the shared
//! state, which `frostline admin` manages.

mod quota;
mod record;
mod revocations;
#[cfg(test)]
mod tests;
mod throttle;
mod token;

pub(crate) use quota::TenantQuota;
pub(crate) use record::{Denied, MAX_TOKENS, TenantRecord};
pub(crate) use revocations::{Revocation, Revocations};
pub(crate) use throttle::{ThrottleReport, TokenThrottle};
pub(crate) use token::{IssuedToken, PresentedToken, StoredToken};

use crate::config::{DataRoots, HostConfig, LiveSettings, upload_units};
use crate::guest_logs::Owner;
use crate::refusal::Refusal;
use crate::sampler::LogRateLimit;
use crate::token::{TokenFile, TokenHash};
use frostline_engine::{Lanes, TenantLanes};
use frostline_state::Documents;
use frostline_tensor::ExecutionTerms;
use frostline_wire::QuotaKey;
use quick_cache::sync::Cache;
use std::sync::Arc;
use tokio::sync::{Mutex, Semaphore};

/// Name of the configured tenant.
pub(crate) const CONFIGURED: &str = "default";

/// Maximum number of revoked tokens of the configured tenant. A single token usually lasts for years.
const MAX_REVOKED_TOKENS: usize = 256;

/// Request bodies received concurrently from one tenant. A body arrives within milliseconds; if the limit is
/// reached, a request waits without using memory or a place in the memory queue.
const BODIES: usize = 64;

/// Lines per second in the host's log about requests of a tenant (level info), and from guests of a tenant
/// (level debug). A line is limited to 2,000 bytes, so a tenant cannot write more than 64 KiB per second at
/// level info.
const LOG_LINES: u32 = 28;
const GUEST_LINES: u32 = 32;

/// Number of recently active tenants whose [`Tenant`] is cached.
const READY: usize = 1024;

/// Limits, permits and lanes for requests of a tenant.
pub(crate) struct Tenant {
    pub(crate) name: String,
    /// Distinguishes the tenant from a removed one of the same name. For the configured tenant the creation
    /// time is 0.
    pub(crate) owner: Owner,
    /// Data roots the tenant may read.
    pub(crate) data: DataRoots,
    pub(crate) quota: TenantQuota,
    /// Permits for concurrent uploads.
    pub(crate) uploads: Arc<Semaphore>,
    /// Permits for request bodies being received.
    pub(crate) bodies: Semaphore,
    /// Bytes of uploads being received, counted in [`upload_units`].
    pub(crate) upload_room: Arc<Semaphore>,
    /// Held while the stored bytes are counted and an upload is added to them.
    pub(crate) storing: Mutex<()>,
    /// Limits the lines about its requests in the host's log.
    pub(crate) log_lines: LogRateLimit,
    /// Limits the lines of guests in the host's log. They are only written at level debug.
    pub(crate) guest_lines: LogRateLimit,
    /// Submits to the host's lanes on behalf of this tenant.
    pub(crate) executor: Arc<TenantLanes>,
}

impl Tenant {
    fn new(owner: Owner, data: DataRoots, quota: TenantQuota, room: u64, lanes: &Lanes) -> Self {
        let name = &owner.tenant;
        let uploads = quota.number(QuotaKey::Uploads).min(Semaphore::MAX_PERMITS);
        let executor = lanes
            .for_tenant(name)
            .on_terms(quota.weight(), ExecutionTerms::default());
        Self {
            name: name.clone(),
            owner,
            data,
            quota,
            uploads: Arc::new(Semaphore::new(uploads)),
            bodies: Semaphore::new(BODIES),
            upload_room: Arc::new(Semaphore::new(upload_units(room) as usize)),
            storing: Mutex::default(),
            log_lines: LogRateLimit::new(LOG_LINES),
            guest_lines: LogRateLimit::new(GUEST_LINES),
            executor: Arc::new(executor),
        }
    }
}

/// An authenticated tenant and the token it used.
#[derive(Clone)]
pub(crate) struct Pass {
    pub(crate) tenant: Arc<Tenant>,
    token: AdmittedToken,
}

/// The token that authenticated a tenant.
#[derive(Clone)]
enum AdmittedToken {
    /// The token in this host's token file.
    Configured(TokenHash),
    /// An added tenant's token, identified by the token id.
    Added(String),
}

/// An added tenant, and the record and settings from which it was built.
#[derive(Clone)]
struct ReadyTenant {
    record: Arc<TenantRecord>,
    settings: Arc<LiveSettings>,
    tenant: Arc<Tenant>,
}

/// All tenants of this host.
pub(crate) struct Tenants {
    /// The configured tenant, built from these settings.
    configured: parking_lot::Mutex<(Arc<LiveSettings>, Arc<Tenant>)>,
    token: Arc<TokenFile>,
    /// Records of the added tenants. The record of [`CONFIGURED`] holds revoked file tokens and whether the
    /// tenant is disabled.
    pub(crate) records: Documents<TenantRecord>,
    /// Revocations that the state may not contain yet.
    pub(crate) revocations: Arc<Revocations>,
    ready: Cache<String, ReadyTenant>,
    lanes: Arc<Lanes>,
    config: HostConfig,
}

impl Tenants {
    /// Combines the configured tenant, authenticated by the token file `token`, with the tenants in
    /// `records`.
    pub(crate) fn new(
        token: Arc<TokenFile>,
        config: &HostConfig,
        records: Documents<TenantRecord>,
        revocations: Arc<Revocations>,
        lanes: Arc<Lanes>,
    ) -> Self {
        let settings = config.live.get();
        let configured = configured_tenant(config, &settings, &lanes);
        Self {
            configured: (settings, configured).into(),
            token,
            records,
            revocations,
            ready: Cache::new(READY),
            lanes,
            config: config.clone(),
        }
    }

    /// Authenticates a token. `now` is given in seconds since 1970.
    ///
    /// # Errors
    /// Returns [`Denied`] if the token is unknown or has expired, or if its tenant is disabled.
    pub(crate) fn admit(&self, token: &str, now: u64) -> Result<Pass, Denied> {
        if let Some(admitted) = self.token.admit(token) {
            self.check_configured(&admitted)?;
            return Ok(Pass {
                tenant: self.configured(),
                token: AdmittedToken::Configured(admitted),
            });
        }
        let shown = PresentedToken::parse(token).ok_or(Denied::Unknown)?;
        let record = self.records.get(shown.tenant).ok_or(Denied::Unknown)?;
        record.admit(&shown, now)?;
        self.check_pending(shown.tenant, shown.id)?;
        Ok(Pass {
            tenant: self.tenant_for(shown.tenant, record),
            token: AdmittedToken::Added(shown.id.to_owned()),
        })
    }

    /// Checks that an authenticated request can continue, because the token is still valid and the tenant is
    /// still enabled.
    ///
    /// # Errors
    /// Returns [`Denied`] with the reason if it may not.
    pub(crate) fn check_valid(&self, pass: &Pass, now: u64) -> Result<(), Denied> {
        match &pass.token {
            AdmittedToken::Configured(admitted) if self.token.is_current(admitted) => {
                self.check_configured(admitted)
            }
            AdmittedToken::Configured(_) => Err(Denied::Unknown),
            AdmittedToken::Added(id) => {
                let record = self.records.get(&pass.tenant.name).ok_or(Denied::Unknown)?;
                record.check_valid(id, now)?;
                self.check_pending(&pass.tenant.name, id)
            }
        }
    }

    /// Returns when the token of an authenticated tenant expires, in seconds since 1970, or `None` if it does not.
    pub(crate) fn expires_at(&self, pass: &Pass) -> Option<u64> {
        let AdmittedToken::Added(id) = &pass.token else {
            return None;
        };
        let record = self.records.get(&pass.tenant.name)?;
        record.tokens.iter().find(|token| token.id == *id)?.expires_at
    }

    /// Checks that the token in this host's file was not revoked, and that the configured tenant is enabled.
    fn check_configured(&self, admitted: &TokenHash) -> Result<(), Denied> {
        let token = StoredToken::in_file(admitted);
        self.check_pending(CONFIGURED, &token.id)?;
        match self.records.get(CONFIGURED) {
            Some(record) if record.tokens.contains(&token) => Err(Denied::Unknown),
            Some(record) if record.disabled => Err(Denied::Disabled),
            _ => Ok(()),
        }
    }

    /// Checks that no revocation of the token waits for the state.
    fn check_pending(&self, tenant: &str, id: &str) -> Result<(), Denied> {
        match self.revocations.contains(tenant, id) {
            true => Err(Denied::Unknown),
            false => Ok(()),
        }
    }

    /// Writes a revocation to the state. For the configured tenant, this adds the token in the token file to the
    /// revoked tokens.
    ///
    /// # Errors
    /// Returns [`Refusal::NotFound`] if the tenant has no such token, [`Refusal::Request`] if too many tokens of the
    /// configured tenant were revoked, and other refusals if the state cannot be written.
    pub(crate) async fn write_revocation(&self, revocation: &Revocation) -> Result<(), Refusal> {
        let Revocation { tenant, id, in_file } = revocation;
        self.records.update(tenant, |now| {
            let configured = in_file.as_ref().map(|_| TenantRecord::configured());
            let mut record = now.cloned().or(configured).ok_or_else(|| unknown_token(tenant, id))?;
            match in_file {
                Some(token) if record.tokens.contains(token) => {}
                Some(_) if record.tokens.len() >= MAX_REVOKED_TOKENS => {
                    return Err(Refusal::request(format!(
                        "{MAX_REVOKED_TOKENS} tokens of {CONFIGURED} were revoked, the limit; disable {CONFIGURED} and add a tenant"
                    )));
                }
                Some(token) => record.tokens.push(token.clone()),
                None if tenant != CONFIGURED && record.revoke(id) => {}
                None => return Err(unknown_token(tenant, id)),
            }
            Ok(Some(record))
        }).await.map(drop)
    }

    /// Returns the configured tenant according to the current settings.
    fn configured(&self) -> Arc<Tenant> {
        let current = self.config.live.get();
        let mut configured = self.configured.lock();
        let (settings, tenant) = &mut *configured;
        if !Arc::ptr_eq(settings, &current) {
            *tenant = configured_tenant(&self.config, &current, &self.lanes);
            *settings = current;
        }
        Arc::clone(tenant)
    }

    /// Returns all tenants with their records, the configured one first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (String, Arc<TenantRecord>)> + use<> {
        let configured = self.record(CONFIGURED);
        let configured = configured.map(|record| (CONFIGURED.to_owned(), record));
        let added = self.records.list("").into_iter();
        configured
            .into_iter()
            .chain(added.filter(|(name, _)| name != CONFIGURED))
    }

    /// Returns the record of a tenant. That of the configured tenant is built from the host's configuration
    /// and token file.
    pub(crate) fn record(&self, name: &str) -> Option<Arc<TenantRecord>> {
        let record = self.records.get(name);
        if name != CONFIGURED {
            return record;
        }
        let token = StoredToken::in_file(&self.token.current());
        let revoked = record
            .as_ref()
            .is_some_and(|record| record.tokens.contains(&token));
        Some(Arc::new(TenantRecord {
            disabled: record.is_some_and(|record| record.disabled),
            data: self
                .config
                .live
                .get()
                .data
                .iter()
                .map(|root| root.as_str().to_owned())
                .collect(),
            tokens: if revoked { Vec::new() } else { vec![token] },
            ..TenantRecord::configured()
        }))
    }

    /// Returns the quota of a tenant, or `None` if the tenant does not exist.
    pub(crate) fn quota(&self, name: &str) -> Option<TenantQuota> {
        if name == CONFIGURED {
            return Some(self.configured().quota.clone());
        }
        let record = self.records.get(name)?;
        let defaults = &self.config.live.get().quota;
        Some(TenantQuota::for_added(
            &record.quota.values,
            &self.config,
            defaults,
        ))
    }

    /// Returns the cached [`Tenant`] of a record, or builds it if the record or the settings have changed.
    fn tenant_for(&self, name: &str, record: Arc<TenantRecord>) -> Arc<Tenant> {
        let settings = self.config.live.get();
        if let Some(ready) = self.ready.get(name)
            && Arc::ptr_eq(&ready.record, &record)
            && Arc::ptr_eq(&ready.settings, &settings)
        {
            return ready.tenant;
        }
        // Roots are validated when granted. If a root is now invalid, do not let the tenant read anything.
        let data = DataRoots::new(&record.data).unwrap_or_else(|error| {
            tracing::error!(tenant = name, %error, "invalid data roots in the record of the tenant, which can read nothing until an admin sets them again");
            DataRoots::none()
        });
        let allowed = TenantQuota::for_added(&record.quota.values, &self.config, &settings.quota);
        let room = self.config.limits.tenant_upload_bytes();
        let owner = Owner {
            tenant: name.to_owned(),
            created_at: record.created_at,
        };
        let tenant = Tenant::new(owner, data, allowed, room, &self.lanes);
        let tenant = Arc::new(tenant);
        let ready = ReadyTenant {
            record,
            settings,
            tenant: Arc::clone(&tenant),
        };
        self.ready.insert(name.to_owned(), ready);
        tenant
    }
}

/// Builds the configured tenant.
fn configured_tenant(config: &HostConfig, settings: &LiveSettings, lanes: &Lanes) -> Arc<Tenant> {
    let owner = Owner {
        tenant: CONFIGURED.to_owned(),
        created_at: 0,
    };
    let quota = TenantQuota::for_configured(config, &settings.quota);
    let data = settings.data.clone();
    let room = config.limits.upload_bytes;
    Arc::new(Tenant::new(owner, data, quota, room, lanes))
}

fn unknown_token(tenant: &str, id: &str) -> Refusal {
    Refusal::not_found(format!(
        "unknown token {id:?} of tenant {tenant:?}; list tokens with frostline admin tenant show"
    ))
}
