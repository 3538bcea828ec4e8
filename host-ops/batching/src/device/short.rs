//! Keeps a lane free of long work, so that a tenant with short work never waits for a long execution.

use super::Device;
use super::figures::TENANTS;
use super::stages::StageState;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// Maximum duration of short work in time slices. Batches are planned for one slice, and other load on the
/// machine can double the duration.
const SHORT_SLICES: u32 = 2;

/// Time for which a tenant stays active without work. A trainer may compute for seconds between two requests.
/// A longer time would idle a lane for tenants that have left.
const LATELY: Duration = Duration::from_secs(10);

impl<S: Clone + Eq + Hash> Device<S> {
    /// True if a batch is known to be short, including the time to open a session if it is `cold`.
    pub(super) fn is_short(&self, known: &StageState<S>, rows: usize, cold: bool) -> bool {
        let opening = match cold {
            true => known.opening,
            false => Some(Duration::ZERO),
        };
        let measured = known.rate.per_row(rows).and(opening);
        measured.is_some_and(|opening| opening.saturating_add(known.rate.time(rows)) <= self.short())
    }

    /// True if `tenant` may start a batch that is not known to be short. While other tenants are active, such
    /// batches never occupy all lanes. A single lane executes everything.
    pub(super) fn may_run_long(&self, tenant: &Arc<str>, now: Duration) -> bool {
        let lanes = self.lanes.iter().filter(|lane| lane.is_there()).count();
        let running = self.lanes.iter().filter_map(super::Lane::running);
        let long = running
            .filter(|running| !running.short || now.saturating_sub(running.since) > self.short())
            .count();
        lanes < 2 || long + 1 < lanes || !self.others_are_active(tenant, now)
    }

    /// Records that work of a tenant ended.
    pub(super) fn note_activity(&mut self, tenant: &Arc<str>, now: Duration) {
        self.active.retain(|_, last| now.saturating_sub(*last) < LATELY);
        if self.active.len() < TENANTS {
            self.active.insert(Arc::clone(tenant), now);
        }
    }

    fn others_are_active(&self, tenant: &Arc<str>, now: Duration) -> bool {
        let mut lately = self.active.iter();
        self.queue.has_work_of_others(tenant)
            || lately.any(|(other, last)| other != tenant && now.saturating_sub(*last) < LATELY)
    }

    /// Returns the times at which tenants without work stop being active.
    pub(super) fn inactivities(&self) -> impl Iterator<Item = Duration> {
        self.active.values().map(|last| *last + LATELY)
    }

    fn short(&self) -> Duration {
        self.rules.time_slice.saturating_mul(SHORT_SLICES)
    }
}
