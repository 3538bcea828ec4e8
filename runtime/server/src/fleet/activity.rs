use super::Fleet;
use crate::metrics::{MemorySnapshot, resident_bytes};
use crate::service::Service;
use frostline_state::HostRecord;
use frostline_wire::{Activity, HostInfo, MemoryActivity, TenantActivity};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl Fleet {
    /// Describes this host. Call this before memory is reserved for an answer, which would be included otherwise.
    pub(crate) fn own_record(&self, service: &Service) -> HostRecord {
        HostRecord {
            host: HostInfo {
                name: service.config.name.clone(),
                run: self.run.clone(),
                address: self.address.get().cloned().unwrap_or_default(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                silent_seconds: 0,
                clock_skew_seconds: self.clock.check().skew(),
                activity: activity(service),
            },
            jobs: service.operations.jobs.list(),
        }
    }
}

/// Collects the current load of the host.
pub(crate) fn activity(service: &Service) -> Activity {
    let extractions = &service.scheduling.extractions;
    let counters = &service.operations.metrics.tenants;
    let lanes = &service.machine.lanes;
    let all = extractions.counts();
    let standings = extractions.counts_by_tenant();
    let stats = lanes.stats();
    let waited: BTreeMap<String, Duration> = stats.waited.iter().cloned().collect();
    let used: BTreeMap<String, Duration> = stats.device_time.iter().cloned().collect();
    let memory = MemorySnapshot::read(&service.scheduling.memory);
    let holders: BTreeMap<String, u64> = memory.tenants.iter().cloned().collect();
    let known = counters.names().chain(standings.keys().cloned());
    let names: BTreeSet<String> = known.chain(holders.keys().cloned()).collect();
    let busy: BTreeMap<String, usize> = stats.holding.iter().cloned().collect();
    let kinds = memory.held.iter();
    Activity {
        stopping: extractions.is_draining(),
        places: service.config.running as u64,
        running: all.running as u64,
        queued: all.queued as u64,
        lanes: lanes.lanes() as u64,
        lane_queue: stats.queued as u64,
        memory_bytes: resident_bytes(),
        memory: Some(MemoryActivity {
            budget: memory.budget,
            held: memory.held_in_all(),
            waiting: memory.waiting as u64,
            kinds: kinds.map(|(kind, bytes)| ((*kind).to_owned(), *bytes)).collect(),
        }),
        device_memory: service.machine.device_memory(),
        failing_roots: service.operations.roots.failing(),
        tenants: names
            .into_iter()
            .map(|name| {
                let standing = standings.get(&name).copied().unwrap_or_default();
                let usage = counters.usage(&name);
                TenantActivity {
                    running: standing.running as u64,
                    queued: standing.queued as u64,
                    cpu_seconds: usage.guest_cpu_seconds,
                    device_seconds: used.get(&name).map_or(0.0, Duration::as_secs_f64),
                    memory_bytes: holders.get(&name).copied().unwrap_or(0),
                    lanes: busy.get(&name).map_or(0, |lanes| *lanes as u64),
                    waited_seconds: waited.get(&name).map_or(0.0, Duration::as_secs_f64),
                    name,
                    extractions: usage.extractions,
                    samples: usage.images,
                    answer_bytes: usage.sent_bytes,
                }
            })
            .collect(),
    }
}
