//! Current load of the lanes.

use super::LaneStats;
use super::state::{LanesState, Submission};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

impl LanesState {
    pub(super) fn stats(&self, now: Instant) -> LaneStats {
        let running: HashSet<u64> = self.running_ids();
        let waiting = self.entries.iter().filter(|(id, _)| !running.contains(id));
        let waiting: Vec<&Submission> = waiting.map(|(_, entry)| entry).collect();
        let wait = waiting.iter().map(|entry| {
            let tenant = Arc::clone(&entry.job.customer.tenant);
            (tenant, self.waited(entry, now))
        });
        let waited = self.waits.longest(self.time(now), wait);
        let predictions = self.device.predictions();
        LaneStats {
            queued: waiting.len(),
            queued_bytes: waiting.iter().map(|entry| entry.job.batch.byte_len()).sum(),
            running: running.iter().filter(|id| self.entries.contains_key(id)).count(),
            memory_misses: predictions.misses,
            memory_error: predictions.error_95(),
            device_budget: self
                .memory
                .as_ref()
                .filter(|_| self.config.device_memory.is_some())
                .map(|memory| memory.read(|ledger| ledger.budget().bytes)),
            memory_held: self.lanes.iter().map(|lane| lane.held).sum(),
            memory_reserved: self
                .lanes
                .iter()
                .filter_map(|lane| Some(lane.memory.as_ref()?.bytes()))
                .sum(),
            processes: self.lanes.iter().filter_map(|lane| lane.process).collect(),
            busy: self.lanes.iter().map(|lane| lane.busy(now)).collect(),
            device_time: by_name(self.device.used()),
            waited: by_name(waited),
            waiting: by_name(self.device.waiting()),
            holding: self.holding(),
            ..self.counts.clone()
        }
    }

    fn holding(&self) -> Vec<(String, usize)> {
        let mut holding: BTreeMap<&str, usize> = BTreeMap::new();
        for lane in &self.lanes {
            let ids = lane.ids().filter_map(|id| self.entries.get(&id));
            let tenants: BTreeSet<&str> = ids.map(|entry| &*entry.job.customer.tenant).collect();
            for tenant in tenants {
                *holding.entry(tenant).or_default() += 1;
            }
        }
        by_name(holding)
    }
}

fn by_name<V>(values: impl IntoIterator<Item = (impl ToString, V)>) -> Vec<(String, V)> {
    let values = values.into_iter();
    values
        .map(|(tenant, value)| (tenant.to_string(), value))
        .collect()
}
