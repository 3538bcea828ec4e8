//! Who runs, who waits, and what is said to who is sent away.

use crate::refusal::Refusal;
use frostline_batching::{EnterError, Share, Standing, TurnGate};
use quick_cache::sync::Cache;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// What a client is told to wait at least and at most: less is a busy loop, more lets permits lie idle.
const RETRY: (u64, u64) = (1, 30);

/// What one takes of a tenant that had none lately.
const UNKNOWN: Duration = Duration::from_secs(1);

/// Tenants whose times are remembered.
const TENANTS: usize = 1024;

/// A bounded number of permits, and a bounded queue before them.
pub(crate) struct Admission {
    /// What is admitted, in words: of many.
    what: &'static str,
    gate: Arc<TurnGate>,
    /// How long those of each tenant took lately; of so many tenants.
    lately: Cache<String, Duration>,
    tracker: TaskTracker,
}

/// The right to run; dropping it lets the next one in.
pub(crate) struct Permit {
    admission: Arc<Admission>,
    tenant: String,
    since: Instant,
    _permit: frostline_batching::Permit,
    _token: TaskTrackerToken,
}

impl Admission {
    /// `permits` for `what` (extractions) with `queued` waiting for them. Whoever holds one is counted in `tracker`.
    pub(super) fn new(what: &'static str, permits: usize, queued: usize, tracker: TaskTracker) -> Arc<Self> {
        Arc::new(Self {
            what,
            gate: TurnGate::open(permits, queued),
            lately: Cache::new(TENANTS),
            tracker,
        })
    }

    /// Waits for a permit, of which the tenant may have as many as it is allowed.
    ///
    /// # Errors
    /// [`Refusal::Busy`] when the tenant's queue or the host's is full, [`Refusal::Stopping`] when the host shuts down.
    pub(crate) async fn enter(self: &Arc<Self>, tenant: &str, allowed: Standing) -> Result<Permit, Refusal> {
        // Before the wait, so that a host that ends waits for whoever was let in and does not know it yet.
        let token = self.tracker.token();
        let permit = self.gate.enter(tenant, Share::AtMost(allowed)).await;
        Ok(Permit {
            _permit: permit.map_err(|error| self.refusal(tenant, error))?,
            admission: Arc::clone(self),
            tenant: tenant.to_owned(),
            since: Instant::now(),
            _token: token,
        })
    }

    /// Lets nobody in any more, the queue included. Whoever has a permit keeps it.
    pub(crate) fn stop(&self) {
        self.gate.close();
    }

    pub(crate) fn stopped(&self) -> bool {
        self.gate.closed()
    }

    /// How many run and wait.
    pub(crate) fn standing(&self) -> Standing {
        self.gate.standing()
    }

    /// The same, of everybody who has something here.
    pub(crate) fn standings(&self) -> BTreeMap<String, Standing> {
        self.gate.standings()
    }

    /// How many have ever asked for a permit.
    pub(super) fn asked(&self) -> u64 {
        self.gate.asked()
    }

    /// When a tenant that is not let in should come back: when, at its own present rate, half of its own that wait are served.
    pub(super) fn retry(&self, tenant: &str) -> Duration {
        let own = self.gate.standing_of(tenant);
        let each = self.lately.get(tenant).unwrap_or(UNKNOWN).as_secs_f64();
        let seconds = each * (own.queued as f64 / 2.0 + 1.0) / own.running.max(1) as f64;
        Duration::from_secs((seconds.ceil() as u64).clamp(RETRY.0, RETRY.1))
    }

    fn refusal(&self, tenant: &str, error: EnterError) -> Refusal {
        let what = self.what;
        match error {
            EnterError::Closed => Refusal::Stopping,
            EnterError::TenantFull(now) => {
                let Standing { running, queued } = now;
                let message = format!(
                    "{running} {what} of {tenant} run and {queued} wait, which is all it may have here; come back when some are done, or ask \
                     whoever runs this host for more (frostline admin quota set {tenant} queued=<number>)"
                );
                Refusal::busy(message, self.retry(tenant))
            }
            EnterError::Full(now) => {
                let Standing { running, queued } = now;
                let message = format!(
                    "{running} {what} run and {queued} wait on this host, which is all it takes, and {tenant} has its share of them"
                );
                Refusal::busy(message, self.retry(tenant))
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let (lately, new) = (&self.admission.lately, self.since.elapsed());
        let old = lately.get(&self.tenant).unwrap_or(new);
        lately.insert(std::mem::take(&mut self.tenant), (old * 3 + new) / 4);
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
    async fn who_is_sent_away_is_told_why_and_when_to_come_back() {
        let admission = Admission::new("extractions", 1, 1, TaskTracker::new());
        let first = admission.enter("greedy", ONE).await.unwrap();
        let mut second = Box::pin(admission.enter("greedy", ONE));
        assert!(poll!(&mut second).is_pending());
        let much = Standing {
            running: 9,
            queued: 9,
        };
        for (allowed, words) in [(ONE, "quota set greedy queued="), (much, "has its share")] {
            let refusal = admission.enter("greedy", allowed).await.map(drop).unwrap_err();
            assert!(refusal.to_string().contains(words), "{refusal}");
            let Refusal::Busy { retry_after, .. } = refusal else {
                panic!("{refusal}")
            };
            assert!(retry_after >= Duration::from_secs(RETRY.0));
        }
        let mut newcomer = Box::pin(admission.enter("newcomer", ONE));
        assert!(poll!(&mut newcomer).is_pending(), "it has nothing here yet");
        drop(first);
        assert!(newcomer.await.is_ok() && second.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_comes_back_when_its_own_are_done() {
        let admission = Admission::new("extractions", 2, 4, TaskTracker::new());
        for (tenant, seconds) in [("slow", 20), ("quick", 1)] {
            let permit = admission.enter(tenant, ONE).await.unwrap();
            tokio::time::advance(Duration::from_secs(seconds)).await;
            drop(permit);
        }
        let seconds = |tenant| admission.retry(tenant).as_secs();
        assert_eq!((seconds("slow"), seconds("quick"), seconds("new")), (20, 1, 1));
        let _running = admission.enter("quick", ONE).await.unwrap();
        let mut waiting = Box::pin(admission.enter("quick", ONE));
        assert!(poll!(&mut waiting).is_pending());
        assert_eq!(seconds("quick"), 2);
    }

    #[tokio::test]
    async fn stopping_sends_the_queue_away_and_keeps_what_runs() {
        let tracker = TaskTracker::new();
        let admission = Admission::new("extractions", 1, 4, tracker.clone());
        let first = admission.enter("a", ONE).await.unwrap();
        let mut second = Box::pin(admission.enter("a", ONE));
        assert!(poll!(&mut second).is_pending());
        admission.stop();
        assert_eq!(second.await.map(drop).unwrap_err(), Refusal::Stopping);
        assert_eq!(refused(&admission, "a").await, Refusal::Stopping);
        assert_eq!(tracker.len(), 1);
        drop(first);
        assert_eq!(tracker.len(), 0);
    }
}
