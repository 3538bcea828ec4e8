//! Who may use this host, and what each may read. One tenant is configured, with the token in the host's token file; the others lie in the
//! shared state and are looked after by `frostline admin`.

mod quota;
mod record;
mod throttle;
mod token;

pub(crate) use quota::TenantQuota;
pub(crate) use record::{Denied, MOST_TOKENS, TenantRecord};
pub(crate) use throttle::{SlowedDown, TokenThrottle};
pub(crate) use token::{IssuedToken, PresentedToken, StoredToken};

use crate::config::{DataRoots, HostConfig, upload_units};
use crate::guest_logs::Owner;
use crate::sampler::Sampler;
use crate::state::Documents;
use crate::token::{TokenFile, TokenHash};
use frostline_engine::{Lanes, TenantLanes};
use frostline_tensor::RunTerms;
use frostline_wire::QuotaKey;
use quick_cache::sync::Cache;
use std::sync::Arc;
use tokio::sync::{Mutex, Semaphore};

/// The configured tenant.
pub(crate) const CONFIGURED: &str = "default";

/// Bodies of requests that one tenant may have on their way: they come within milliseconds, and those beyond wait without taking memory, or part in
/// the queue for it.
const BODIES: usize = 64;

/// Lines a second about one tenant's requests, and of its guests: one has 2,000 bytes at most, so that no tenant makes more than 64 KiB a
/// second at the level info, whatever it sends and the host fails.
const LOG_LINES: u32 = 28;
const GUEST_LINES: u32 = 32;

/// Tenants kept ready: those that were active lately.
const READY: usize = 1024;

/// A tenant as its requests are served.
pub(crate) struct Tenant {
    pub(crate) name: String,
    /// What tells it from one of the same name that was removed; the configured one was created at 0.
    pub(crate) owner: Owner,
    /// What it may read.
    pub(crate) data: DataRoots,
    /// How much it may use.
    pub(crate) allowed: TenantQuota,
    /// Permits for its uploads.
    pub(crate) uploads: Arc<Semaphore>,
    /// Permits for bodies of its requests on their way.
    pub(crate) bodies: Semaphore,
    /// Space for uploads, in the units of [`upload_units`].
    pub(crate) upload_room: Arc<Semaphore>,
    /// Held while what it keeps is counted and added to.
    pub(crate) storing: Mutex<()>,
    /// Lines about its requests in the host's log.
    pub(crate) log_lines: Sampler,
    /// Lines of its guests there, where the host logs at the level debug.
    pub(crate) guest_lines: Sampler,
    /// The lanes, in its name.
    pub(crate) executor: Arc<TenantLanes>,
}

impl Tenant {
    fn new(owner: Owner, data: DataRoots, allowed: TenantQuota, room: u64, lanes: &Lanes) -> Self {
        let name = &owner.tenant;
        let uploads = allowed.number(QuotaKey::Uploads).min(Semaphore::MAX_PERMITS);
        let executor = lanes
            .for_tenant(name)
            .on_terms(allowed.weight(), RunTerms::default());
        Self {
            name: name.clone(),
            owner,
            data,
            allowed,
            uploads: Arc::new(Semaphore::new(uploads)),
            bodies: Semaphore::new(BODIES),
            upload_room: Arc::new(Semaphore::new(upload_units(room) as usize)),
            storing: Mutex::default(),
            log_lines: Sampler::new(LOG_LINES),
            guest_lines: Sampler::new(GUEST_LINES),
            executor: Arc::new(executor),
        }
    }
}

/// A tenant that was let in, and by what.
#[derive(Clone)]
pub(crate) struct Pass {
    pub(crate) tenant: Arc<Tenant>,
    token: AdmittedToken,
}

/// The token by which a tenant was let in.
#[derive(Clone)]
enum AdmittedToken {
    /// The configured tenant's.
    Configured(TokenHash),
    /// An added tenant's, by its id.
    Added(String),
}

/// All tenants.
pub(crate) struct Tenants {
    configured: Arc<Tenant>,
    token: Arc<TokenFile>,
    /// What is kept of those that were added.
    pub(crate) records: Documents<TenantRecord>,
    ready: Cache<String, (Arc<TenantRecord>, Arc<Tenant>)>,
    lanes: Arc<Lanes>,
    config: HostConfig,
}

impl Tenants {
    /// The configured tenant, which shows the token of that file, and those of `records`.
    pub(crate) fn new(
        token: Arc<TokenFile>,
        config: &HostConfig,
        records: Documents<TenantRecord>,
        lanes: Arc<Lanes>,
    ) -> Self {
        let allowed = TenantQuota::for_configured(config);
        let room = config.limits.upload_bytes;
        let owner = Owner {
            tenant: CONFIGURED.to_owned(),
            created_at: 0,
        };
        let configured = Tenant::new(owner, config.data.clone(), allowed, room, &lanes);
        Self {
            configured: Arc::new(configured),
            token,
            records,
            ready: Cache::new(READY),
            lanes,
            config: config.clone(),
        }
    }

    /// Whose token this is.
    ///
    /// # Errors
    /// [`Denied`].
    pub(crate) fn admit(&self, token: &str, now: u64) -> Result<Pass, Denied> {
        if let Some(admitted) = self.token.admit(token) {
            self.check_configured(&admitted)?;
            return Ok(Pass {
                tenant: Arc::clone(&self.configured),
                token: AdmittedToken::Configured(admitted),
            });
        }
        let shown = PresentedToken::parse(token).ok_or(Denied::Unknown)?;
        let record = self.records.get(shown.tenant).ok_or(Denied::Unknown)?;
        record.admit(&shown, now)?;
        Ok(Pass {
            tenant: self.tenant_for(shown.tenant, record),
            token: AdmittedToken::Added(shown.id.to_owned()),
        })
    }

    /// Whether who was let in may stay, by what is known of its tenant now.
    ///
    /// # Errors
    /// [`Denied`].
    pub(crate) fn check_valid(&self, pass: &Pass, now: u64) -> Result<(), Denied> {
        match &pass.token {
            AdmittedToken::Configured(admitted) if self.token.is_current(admitted) => {
                self.check_configured(admitted)
            }
            AdmittedToken::Configured(_) => Err(Denied::Unknown),
            AdmittedToken::Added(id) => {
                let record = self.records.get(&pass.tenant.name).ok_or(Denied::Unknown)?;
                record.check_valid(id, now)
            }
        }
    }

    /// Whether the configured tenant may enter by the token in this host's file.
    fn check_configured(&self, admitted: &TokenHash) -> Result<(), Denied> {
        match self.records.get(CONFIGURED) {
            Some(record) if record.tokens.contains(&StoredToken::in_file(admitted)) => Err(Denied::Unknown),
            Some(record) if record.disabled => Err(Denied::Disabled),
            _ => Ok(()),
        }
    }

    /// What is known of a tenant; of the configured one by this host's configuration and token file.
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
                .data
                .iter()
                .map(|root| root.as_str().to_owned())
                .collect(),
            tokens: if revoked { Vec::new() } else { vec![token] },
            ..TenantRecord::configured()
        }))
    }

    /// What a tenant may use; `None` for one nobody knows.
    pub(crate) fn allowed(&self, name: &str) -> Option<TenantQuota> {
        if name == CONFIGURED {
            return Some(self.configured.allowed.clone());
        }
        let record = self.records.get(name)?;
        Some(TenantQuota::for_added(&record.quota.values, &self.config))
    }

    /// The tenant of a record; made anew when the record has changed.
    fn tenant_for(&self, name: &str, record: Arc<TenantRecord>) -> Arc<Tenant> {
        if let Some((known, tenant)) = self.ready.get(name)
            && Arc::ptr_eq(&known, &record)
        {
            return tenant;
        }
        // Roots were checked when they were given; of one that can no longer be understood nothing may be read.
        let data = DataRoots::new(&record.data).unwrap_or_else(|error| {
            tracing::error!(tenant = name, %error, "invalid data roots in the tenant's record; it can read nothing");
            DataRoots::none()
        });
        let allowed = TenantQuota::for_added(&record.quota.values, &self.config);
        let room = self.config.limits.tenant_upload_bytes();
        let owner = Owner {
            tenant: name.to_owned(),
            created_at: record.created_at,
        };
        let tenant = Tenant::new(owner, data, allowed, room, &self.lanes);
        let tenant = Arc::new(tenant);
        self.ready.insert(name.to_owned(), (record, Arc::clone(&tenant)));
        tenant
    }
}
