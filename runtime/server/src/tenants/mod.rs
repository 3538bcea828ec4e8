//! Who may use this host, and what each may read. One tenant is configured, with the token in the host's token file; the others lie in the
//! shared state and are looked after by `frostline admin`.

mod bouncer;
mod record;
mod token;

pub(crate) use bouncer::Bouncer;
pub(crate) use record::{Denied, MOST_TOKENS, TenantRecord};
pub(crate) use token::{Fresh, KeptToken};

use crate::GrantedRoots;
use crate::state::Documents;
use crate::token::TokenHash;
use frostline_engine::{Lanes, TenantLanes};
use quick_cache::sync::Cache;
use std::sync::Arc;
use token::Shown;

/// The configured tenant.
pub(crate) const CONFIGURED: &str = "default";

/// Tenants kept ready: those that were active lately.
const READY: usize = 1024;

/// A tenant as its requests are served.
pub(crate) struct Tenant {
    pub(crate) name: String,
    /// What it may read.
    pub(crate) data: GrantedRoots,
    /// The lanes, in its name.
    pub(crate) executor: Arc<TenantLanes>,
}

/// All tenants.
pub(crate) struct Tenants {
    configured: Arc<Tenant>,
    token: TokenHash,
    records: Arc<Documents<TenantRecord>>,
    ready: Cache<String, (Arc<TenantRecord>, Arc<Tenant>)>,
    lanes: Arc<Lanes>,
}

impl Tenants {
    /// The configured tenant, which reads `data` with the token of that hash, and those of `records`.
    pub(crate) fn new(
        token: TokenHash,
        data: GrantedRoots,
        records: Arc<Documents<TenantRecord>>,
        lanes: Arc<Lanes>,
    ) -> Self {
        let configured = Tenant {
            name: CONFIGURED.to_owned(),
            data,
            executor: Arc::new(lanes.for_tenant(CONFIGURED)),
        };
        Self {
            configured: Arc::new(configured),
            token,
            records,
            ready: Cache::new(READY),
            lanes,
        }
    }

    /// Whose token this is.
    ///
    /// # Errors
    /// [`Denied`].
    pub(crate) fn admit(&self, token: &str, now: u64) -> Result<Arc<Tenant>, Denied> {
        if self.token.matches(token) {
            return Ok(Arc::clone(&self.configured));
        }
        let shown = Shown::parse(token).ok_or(Denied::Unknown)?;
        let record = self.records.get(shown.tenant).ok_or(Denied::Unknown)?;
        record.admit(&shown, now)?;
        Ok(self.ready(shown.tenant, record))
    }

    /// The tenant of a record; made anew when the record has changed.
    fn ready(&self, name: &str, record: Arc<TenantRecord>) -> Arc<Tenant> {
        if let Some((known, tenant)) = self.ready.get(name)
            && Arc::ptr_eq(&known, &record)
        {
            return tenant;
        }
        // Roots were checked when they were granted; one that can no longer be read grants nothing.
        let data = GrantedRoots::new(&record.data).unwrap_or_else(|error| {
            tracing::error!(tenant = name, %error, "the tenant's data cannot be granted");
            GrantedRoots::none()
        });
        let tenant = Arc::new(Tenant {
            name: name.to_owned(),
            data,
            executor: Arc::new(self.lanes.for_tenant(name)),
        });
        self.ready.insert(name.to_owned(), (record, Arc::clone(&tenant)));
        tenant
    }
}
