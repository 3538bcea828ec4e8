//! Admission control with permits, a bounded queue, and a retry time in refusals.

use crate::refusal::Refusal;
use frostline_batching::{EnterError, Share, Standing, TurnGate};
use quick_cache::sync::Cache;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Bounds of `Retry-After` in seconds. With a smaller value clients poll, and with a larger value permits
/// stay idle.
const RETRY_BOUNDS: (u64, u64) = (1, 30);

/// Assumed duration for a tenant without recent measurements.
const DEFAULT_DURATION: Duration = Duration::from_secs(1);

/// Number of tenants with recorded durations.
const RECORDED_TENANTS: usize = 1024;

/// A bounded number of permits with a bounded queue.
pub(crate) struct Admission {
    /// Plural noun for the admitted requests, used in messages.
    noun: &'static str,
    gate: Arc<TurnGate>,
    /// Number of permits that a tenant can have, or `None` if the caller decides.
    each: Option<usize>,
    /// Recent duration by tenant.
    recent: Cache<String, Duration>,
    tracker: TaskTracker,
}

/// The right to run, released on drop.
pub(crate) struct AdmissionPermit {
    admission: Arc<Admission>,
    tenant: String,
    started: Instant,
    _permit: frostline_batching::Permit,
    _token: TaskTrackerToken,
}

impl Admission {
    /// Creates `permits` permits with room for `queued` waiting requests. A tenant can have `each` permits, or as
    /// many as the caller allows if it is `None`. `noun` is the plural used in messages. `tracker` counts running
    /// and waiting requests.
    pub(super) fn new(
        noun: &'static str,
        permits: usize,
        each: Option<usize>,
        queued: usize,
        tracker: TaskTracker,
    ) -> Arc<Self> {
        Arc::new(Self {
            noun,
            gate: TurnGate::open(permits, queued),
            each,
            recent: Cache::new(RECORDED_TENANTS),
            tracker,
        })
    }

    /// Waits for a permit. `allowed` limits the permits and the queue of the tenant.
    ///
    /// # Errors
    /// - Returns [`Refusal::Busy`] if the queue of the tenant or of the host is full.
    /// - Returns [`Refusal::Stopping`] if the host shuts down.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        tenant: &str,
        allowed: Standing,
    ) -> Result<AdmissionPermit, Refusal> {
        // Register before waiting, so a shutdown also waits for requests that are being admitted.
        let token = self.tracker.token();
        let allowed = Standing {
            running: self.each.unwrap_or(allowed.running),
            ..allowed
        };
        let permit = self.gate.enter(tenant, Share::AtMost(allowed)).await;
        Ok(AdmissionPermit {
            _permit: permit.map_err(|error| self.refusal(tenant, error))?,
            admission: Arc::clone(self),
            tenant: tenant.to_owned(),
            started: Instant::now(),
            _token: token,
        })
    }

    /// Refuses new entries and the queue; permits stay valid.
    pub(crate) fn drain(&self) {
        self.gate.close();
    }

    /// Accepts entries again.
    pub(super) fn resume(&self) {
        self.gate.reopen();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.gate.closed()
    }

    /// Numbers of running and queued requests.
    pub(crate) fn counts(&self) -> Standing {
        self.gate.standing()
    }

    /// Numbers of running and queued requests per tenant.
    pub(crate) fn counts_by_tenant(&self) -> BTreeMap<String, Standing> {
        self.gate.standings()
    }

    /// Number of permits requested since the start.
    pub(super) fn requested(&self) -> u64 {
        self.gate.asked()
    }

    /// Returns the time after which a refused tenant should retry: the expected time to serve half of the
    /// tenant's queue.
    pub(super) fn retry_after(&self, tenant: &str) -> Duration {
        let own = self.gate.standing_of(tenant);
        let each = self.recent.get(tenant).unwrap_or(DEFAULT_DURATION).as_secs_f64();
        let seconds = each * (own.queued as f64 / 2.0 + 1.0) / own.running.max(1) as f64;
        Duration::from_secs((seconds.ceil() as u64).clamp(RETRY_BOUNDS.0, RETRY_BOUNDS.1))
    }

    fn refusal(&self, tenant: &str, error: EnterError) -> Refusal {
        let what = self.noun;
        match error {
            EnterError::Closed => Refusal::Stopping,
            EnterError::TenantFull(now) => {
                let Standing { running, queued } = now;
                let message = format!(
                    "the queue of {tenant} is full: {running} {what} running, {queued} queued; retry later, or ask the operator to raise \
                     the quota (frostline admin quota set {tenant} queued=<number>)"
                );
                Refusal::busy(message, self.retry_after(tenant))
            }
            EnterError::Full(now) => {
                let Standing { running, queued } = now;
                let message = format!(
                    "the queue of the host is full: {running} {what} running, {queued} queued, and {tenant} has its fair share; retry later"
                );
                Refusal::busy(message, self.retry_after(tenant))
            }
        }
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let recent = &self.admission.recent;
        let new = self.started.elapsed();
        let old = recent.get(&self.tenant).unwrap_or(new);
        recent.insert(std::mem::take(&mut self.tenant), (old * 3 + new) / 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::poll;

    const ONE: Standing = Standing {
        running: 1,
        queued: 1,
    };

    async fn refused(admission: &Arc<Admission>, tenant: &str) -> Refusal {
        admission.enter(tenant, ONE).await.map(drop).unwrap_err()
    }

    #[tokio::test]
    async fn refusals_contain_the_reason_and_a_retry_time() {
        let admission = Admission::new("extractions", 1, None, 1, TaskTracker::new());
        let first = admission.enter("greedy", ONE).await.unwrap();
        let mut second = Box::pin(admission.enter("greedy", ONE));
        assert!(poll!(&mut second).is_pending());
        let much = Standing {
            running: 9,
            queued: 9,
        };
        for (allowed, words) in [(ONE, "quota set greedy queued="), (much, "has its fair share")] {
            let refusal = admission.enter("greedy", allowed).await.map(drop).unwrap_err();
            assert!(refusal.to_string().contains(words), "{refusal}");
            let Refusal::Busy { retry_after, .. } = refusal else {
                panic!("{refusal}")
            };
            assert!(retry_after >= Duration::from_secs(RETRY_BOUNDS.0));
        }
        let mut newcomer = Box::pin(admission.enter("newcomer", ONE));
        assert!(
            poll!(&mut newcomer).is_pending(),
            "a tenant without requests can always queue"
        );
        drop(first);
        assert!(newcomer.await.is_ok() && second.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_retry_time_depends_on_the_tenants_own_durations() {
        let admission = Admission::new("extractions", 2, None, 4, TaskTracker::new());
        for (tenant, seconds) in [("slow", 20), ("quick", 1)] {
            let permit = admission.enter(tenant, ONE).await.unwrap();
            tokio::time::advance(Duration::from_secs(seconds)).await;
            drop(permit);
        }
        let seconds = |tenant| admission.retry_after(tenant).as_secs();
        assert_eq!((seconds("slow"), seconds("quick"), seconds("new")), (20, 1, 1));
        let _running = admission.enter("quick", ONE).await.unwrap();
        let mut waiting = Box::pin(admission.enter("quick", ONE));
        assert!(poll!(&mut waiting).is_pending());
        assert_eq!(seconds("quick"), 2);
    }

    #[tokio::test]
    async fn draining_refuses_the_queue_and_keeps_permits_valid() {
        let tracker = TaskTracker::new();
        let admission = Admission::new("extractions", 1, None, 4, tracker.clone());
        let first = admission.enter("a", ONE).await.unwrap();
        let mut second = Box::pin(admission.enter("a", ONE));
        assert!(poll!(&mut second).is_pending());
        admission.drain();
        assert_eq!(second.await.map(drop).unwrap_err(), Refusal::Stopping);
        assert_eq!(refused(&admission, "a").await, Refusal::Stopping);
        assert_eq!(tracker.len(), 1);
        drop(first);
        assert_eq!(tracker.len(), 0);
    }
}
