//! Counters of tenants, from which the state keeps the daily usage. See `docs/accounting.md`.

use crate::service::Service;
use frostline_wire::Usage;
use std::collections::BTreeMap;

/// Reads the counters of all tenants, which start when the host starts, and the size of stored uploads.
pub(crate) fn counters(service: &Service) -> BTreeMap<String, Usage> {
    let metrics = &service.operations.metrics.tenants;
    let library = &service.library;
    let mut usages: BTreeMap<String, Usage> = metrics
        .names()
        .map(|name| (name.clone(), metrics.usage(&name)))
        .collect();
    for (tenant, time) in service.machine.lanes.stats().device_time {
        usages.entry(tenant).or_default().device_seconds = time.as_secs_f64();
    }
    for (tenant, bytes) in library.stored_bytes() {
        usages.entry(tenant).or_default().stored_bytes = bytes;
    }
    usages
}
