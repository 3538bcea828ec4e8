//! What an extraction's guest used is counted when the extraction ends, however it does.

use crate::metrics::{Metrics, TenantLabels};
use frostline_sandbox::Allowance;
use prometheus_client::metrics::counter::Counter;
use std::sync::Arc;

/// Counts the CPU time of an allowance when dropped.
pub(super) struct Spent {
    allowance: Option<Arc<Allowance>>,
    cpu_millis: Counter,
}

impl Spent {
    /// `allowance` is of the tenant's extraction, where that runs a guest.
    pub(super) fn new(metrics: &Metrics, tenant: &str, allowance: Option<Arc<Allowance>>) -> Self {
        let labels = TenantLabels {
            tenant: tenant.to_owned(),
        };
        Self {
            allowance,
            cpu_millis: metrics.tenants.cpu_millis.get_or_create(&labels).clone(),
        }
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        if let Some(allowance) = &self.allowance {
            let millis = allowance.usage().cpu.as_millis();
            self.cpu_millis.inc_by(u64::try_from(millis).unwrap_or(u64::MAX));
        }
    }
}
