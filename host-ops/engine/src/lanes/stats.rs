use super::state::{Entry, State};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What lanes do now and have done since they started.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LaneStats {
    /// Submissions that wait.
    pub queued: usize,
    /// Bytes of their batches.
    pub queued_bytes: usize,
    /// Submissions that run.
    pub running: usize,
    /// Submissions that ended well.
    pub jobs_done: u64,
    /// Submissions that ended with an error, were cancelled or ran out of time, those refused by a full queue not
    /// counted.
    pub jobs_failed: u64,
    /// Samples (rows) of those that ended well.
    pub samples_done: u64,
    /// Runs that ended well.
    pub runs: u64,
    /// Rows in them, padding not counted.
    pub rows: u64,
    /// Those of them that had rows of several submissions.
    pub runs_joined: u64,
    /// Runs that were tried again with fewer rows, or more memory, as theirs did not suffice.
    pub out_of_memory: u64,
    /// Runs that took more than was predicted.
    pub memory_misses: u64,
    /// What 95 % of the latest predictions of a run's memory were off by at most, as a part of what was measured; `None` without any.
    pub memory_error: Option<f64>,
    /// Bytes of a device that lanes may have, where they go by its memory and that is bounded: the two figures below are of it then, and
    /// of the host's memory otherwise.
    pub device_budget: Option<u64>,
    /// Bytes that the lanes' processes hold between runs, as far as the system tells.
    pub memory_held: u64,
    /// Bytes that are reserved for lanes: that, and what runs may take.
    pub memory_reserved: u64,
    /// Sessions that were opened.
    pub sessions_opened: u64,
    /// Sessions that were closed for others.
    pub sessions_closed: u64,
    /// Processes of lanes that were lost with a run in them.
    pub crashes: u64,
    /// How often a model was put away for its tenant, as it had crashed too many.
    pub quarantines: u64,
    /// Processes of the lanes, by their ids; none when the lanes run in this one.
    pub processes: Vec<u32>,
    /// How long each lane has worked, with what it runs now.
    pub busy: Vec<Duration>,
    /// Device time of tenants that used it lately, by their names.
    pub used: Vec<(String, Duration)>,
    /// The longest that tenants waited for a lane in the last minute or two, by their names, with what waits still.
    pub waited: Vec<(String, Duration)>,
    /// Rows that wait of each tenant, none of those that have none.
    pub waiting: Vec<(String, usize)>,
    /// Lanes that run for each tenant now; one that runs rows of several counts for each of them.
    pub holding: Vec<(String, usize)>,
}

impl State {
    pub(super) fn stats(&self, now: Instant) -> LaneStats {
        let running: HashSet<u64> = self.running_ids();
        let waiting = self.entries.iter().filter(|(id, _)| !running.contains(id));
        let waiting: Vec<&Entry> = waiting.map(|(_, entry)| entry).collect();
        let wait = waiting.iter().map(|entry| {
            let tenant = Arc::clone(&entry.job.customer.tenant);
            (tenant, self.waited(entry, now))
        });
        let waited = self.waits.longest(self.time(now), wait);
        let (lanes, predictions) = (|| self.lanes.iter(), self.device.predictions());
        LaneStats {
            queued: waiting.len(),
            queued_bytes: waiting.iter().map(|entry| entry.job.batch.byte_len()).sum(),
            running: running.iter().filter(|id| self.entries.contains_key(id)).count(),
            memory_misses: predictions.misses,
            memory_error: predictions.error_95(),
            device_budget: self
                .memory
                .as_ref()
                .filter(|_| self.on_device)
                .map(|memory| memory.read(|ledger| ledger.budget().bytes)),
            memory_held: lanes().map(|lane| lane.held).sum(),
            memory_reserved: lanes()
                .filter_map(|lane| Some(lane.memory.as_ref()?.bytes()))
                .sum(),
            processes: lanes().filter_map(|lane| lane.process).collect(),
            busy: lanes().map(|lane| lane.busy(now)).collect(),
            used: self
                .device
                .used()
                .map(|(tenant, time)| (tenant.to_owned(), time))
                .collect(),
            waited: waited
                .into_iter()
                .map(|(tenant, longest)| (tenant.to_string(), longest))
                .collect(),
            waiting: self
                .device
                .waiting()
                .map(|(tenant, rows)| (tenant.to_owned(), rows))
                .collect(),
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
        holding
            .into_iter()
            .map(|(tenant, lanes)| (tenant.to_owned(), lanes))
            .collect()
    }
}
