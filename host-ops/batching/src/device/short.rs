//! Keeps a lane free of long work, so that a tenant with short work never waits for a long execution.

use super::Device;
use super::recent::{Activity, TENANTS};
use super::stages::StageState;
use super::work::TIME_SLICE;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// Maximum duration of short batches, as a multiple of a time slice or of the other tenants' last batches.
/// Batches are planned for one slice, and other load on the machine can double the duration.
const SHORT: u32 = 2;

/// Time for which a tenant stays active without work. A trainer may compute for seconds between two requests.
/// A longer time would idle a lane for tenants that have left.
const LATELY: Duration = Duration::from_secs(10);

/// Returns true if a batch is known to end within `limit`. The time to open a session counts if the batch is
/// `cold`.
pub(super) fn is_short<S>(known: &StageState<S>, rows: usize, cold: bool, limit: Duration) -> bool {
    let opening = match cold {
        true => known.opening,
        false => Some(Duration::ZERO),
    };
    let measured = known.rate.per_row(rows).and(opening);
    measured.is_some_and(|opening| opening.saturating_add(known.rate.time(rows)) <= limit)
}

impl<S: Clone + Eq + Hash> Device<S> {
    /// Returns the longest duration of a batch of `tenant` that counts as short.
    pub(super) fn short_limit(&self, tenant: &Arc<str>, now: Duration) -> Duration {
        // On an overloaded machine, no batch ends within two slices, so the batches of other tenants count too.
        let others = self.active_others(tenant, now).map(|activity| activity.took);
        others.min().unwrap_or_default().max(TIME_SLICE) * SHORT
    }

    /// True if `tenant` may start a batch that is not known to be short. While other tenants are active, such
    /// batches never occupy all lanes. A single lane executes everything.
    pub(super) fn may_run_long(&self, tenant: &Arc<str>, now: Duration) -> bool {
        let lanes = self.lanes.iter().filter(|lane| lane.is_there()).count();
        let counted = self.lanes.iter().filter_map(super::Lane::counts_until);
        let replaced = counted.filter(|until| now < *until).count();
        let running = self.lanes.iter().filter_map(super::Lane::running);
        let long = running.filter(|running| running.is_long(now)).count();
        let active =
            self.queue.has_work_of_others(tenant) || self.active_others(tenant, now).next().is_some();
        lanes + replaced < 2 || long + 1 < lanes || !active
    }

    /// Records that a batch of a tenant ended after `took`, or a preparation.
    pub(super) fn note_activity(&mut self, tenant: &Arc<str>, now: Duration, took: Option<Duration>) {
        self.active
            .retain(|_, activity| now.saturating_sub(activity.last) < LATELY);
        let before = self.active.get(tenant).map(|activity| activity.took);
        if before.is_some() || self.active.len() < TENANTS {
            let took = took.or(before).unwrap_or_default();
            self.active
                .insert(Arc::clone(tenant), Activity { last: now, took });
        }
    }

    /// Returns the times at which [`Self::may_run_long`] may change although nothing else happens: tenants without
    /// work stop being active, and lost lanes stop counting.
    pub(super) fn long_work_due(&self) -> impl Iterator<Item = Duration> {
        let inactive = self.active.values().map(|activity| activity.last + LATELY);
        inactive.chain(self.lanes.iter().filter_map(super::Lane::counts_until))
    }

    fn active_others(&self, tenant: &Arc<str>, now: Duration) -> impl Iterator<Item = &Activity> {
        let others = self.active.iter().filter(move |(other, _)| *other != tenant);
        others
            .map(|(_, activity)| activity)
            .filter(move |activity| now.saturating_sub(activity.last) < LATELY)
    }
}
