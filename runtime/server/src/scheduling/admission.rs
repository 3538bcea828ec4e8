//! Which extractions run, which wait, and who is sent away.

use super::lines::{Line, Lines, Standing, Waiter};
use crate::refusal::Refusal;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// What a client is told to wait at least and at most: less is a busy loop, more lets permits lie idle.
const RETRY: (u64, u64) = (1, 30);

/// A bounded number of permits, and a bounded queue before them. A free permit goes to the tenant that has the fewest; among equals to the
/// one whose extractions took the least time since it last had none here; within a tenant, first come, first served.
pub(crate) struct Admission {
    /// What is admitted, in words: of many.
    what: &'static str,
    permits: usize,
    queued_limit: usize,
    lines: Mutex<Lines>,
    /// How long extractions took lately, in milliseconds.
    lately: AtomicU64,
    tracker: TaskTracker,
}

/// A running extraction's permit; dropping it lets the next one in.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    tenant: String,
    since: Instant,
    _token: TaskTrackerToken,
}

impl Admission {
    /// `permits` for `what` (extractions) with `queued_limit` waiting for them. Whoever holds a permit is counted in `tracker`.
    pub(crate) fn new(
        what: &'static str,
        permits: usize,
        queued_limit: usize,
        tracker: TaskTracker,
    ) -> Arc<Self> {
        Arc::new(Self {
            what,
            permits,
            queued_limit,
            lines: Mutex::default(),
            lately: AtomicU64::new(1000),
            tracker,
        })
    }

    /// Waits for a permit, of which the tenant may have as many as it is allowed.
    ///
    /// # Errors
    /// [`Refusal::Busy`] when the tenant's queue or the host's is full, [`Refusal::Stopping`] when the host shuts down.
    pub(crate) async fn enter(self: &Arc<Self>, tenant: &str, allowed: Standing) -> Result<Permit, Refusal> {
        let (id, coming) = self.stand(tenant, allowed)?;
        let _leave = Leave {
            admission: self,
            tenant,
            id,
        };
        self.let_in();
        coming.await.map_err(|_| Refusal::Stopping)
    }

    /// Lets nobody in any more, the queue included. Whoever has a permit keeps it.
    pub(crate) fn stop(&self) {
        let waiting = {
            let mut lines = self.lines();
            lines.stopped = true;
            lines.queued = 0;
            let clear = |line: &mut Line| std::mem::take(&mut line.waiting);
            lines.tenants.values_mut().map(clear).collect::<Vec<_>>()
        };
        drop(waiting);
    }

    pub(crate) fn stopped(&self) -> bool {
        self.lines().stopped
    }

    pub(crate) fn queued(&self) -> usize {
        self.lines().queued
    }

    pub(crate) fn running(&self) -> usize {
        self.lines().running
    }

    /// How many have ever asked for a permit.
    pub(crate) fn asked(&self) -> u64 {
        self.lines().next
    }

    /// When to come back who is not let in.
    pub(crate) fn retry(&self) -> Duration {
        let lines = self.lines();
        self.later(lines.running, lines.queued)
    }

    /// Everybody who has something here.
    pub(crate) fn standings(&self) -> BTreeMap<String, Standing> {
        let lines = self.lines();
        let standings = lines.tenants.iter();
        standings
            .map(|(name, line)| (name.clone(), line.standing()))
            .collect()
    }

    /// Joins the tenant's line.
    fn stand(&self, tenant: &str, allowed: Standing) -> Result<(u64, oneshot::Receiver<Permit>), Refusal> {
        let mut lines = self.lines();
        if lines.stopped {
            return Err(Refusal::Stopping);
        }
        let now = lines.tenants.get(tenant).map(Line::standing).unwrap_or_default();
        let waits = lines.running >= self.permits || now.running >= allowed.running;
        if waits && now.queued >= allowed.queued {
            return Err(self.own_full(tenant, now));
        }
        if waits && lines.queued >= self.queued_limit {
            return Err(self.full(lines.running, lines.queued));
        }
        let newcomer = lines.newcomer();
        lines.next += 1;
        lines.queued += 1;
        let (id, (permit, coming)) = (lines.next, oneshot::channel());
        let line = lines.tenants.entry(tenant.to_owned()).or_insert(newcomer);
        line.allowed = allowed.running;
        line.waiting.push_back(Waiter { id, permit });
        Ok((id, coming))
    }

    /// Gives out all permits that can be.
    fn let_in(self: &Arc<Self>) {
        let mut lost = Vec::new();
        let mut lines = self.lines();
        while lines.running < self.permits
            && let Some((tenant, waiter)) = lines.first()
        {
            let permit = Permit {
                admission: Arc::clone(self),
                tenant,
                since: Instant::now(),
                _token: self.tracker.token(),
            };
            lost.extend(waiter.permit.send(permit).err());
        }
        drop(lines);
        // Whoever left while the permit was on its way gives it back, for which it needs the lock.
        drop(lost);
    }

    fn leave(&self, tenant: &str, id: u64) {
        let mut lines = self.lines();
        if let Some(line) = lines.tenants.get_mut(tenant) {
            let before = line.waiting.len();
            line.waiting.retain(|waiter| waiter.id != id);
            let left = before - line.waiting.len();
            lines.queued = lines.queued.saturating_sub(left);
            lines.forget_idle(tenant);
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own_full(&self, tenant: &str, now: Standing) -> Refusal {
        let Standing { running, queued } = now;
        Refusal::Busy {
            message: format!(
                "{running} {} of {tenant} run and {queued} wait, which is all it may have here; come back when some are done, or ask \
                 whoever runs this host for more (frostline admin quota set {tenant} queued=<number>)",
                self.what
            ),
            retry_after: self.later(running, queued),
        }
    }

    fn full(&self, running: usize, queued: usize) -> Refusal {
        Refusal::Busy {
            message: format!(
                "{running} {} run and {queued} wait on this host, which is all it takes",
                self.what
            ),
            retry_after: self.later(running, queued),
        }
    }

    /// When, at the present rate, half of the queue is served.
    fn later(&self, running: usize, queued: usize) -> Duration {
        let each = Duration::from_millis(self.lately.load(Ordering::Relaxed)).as_secs_f64();
        let seconds = (each * (queued as f64 / 2.0 + 1.0) / running.max(1) as f64).ceil() as u64;
        Duration::from_secs(seconds.clamp(RETRY.0, RETRY.1))
    }

    fn took(&self, time: Duration) {
        let new = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let blend = |old: u64| Some(old.saturating_mul(3).saturating_add(new) / 4);
        // The closure always gives a value.
        let _ = self
            .lately
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, blend);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let took = self.since.elapsed();
        self.admission.took(took);
        {
            let mut lines = self.admission.lines();
            lines.running = lines.running.saturating_sub(1);
            if let Some(line) = lines.tenants.get_mut(&self.tenant) {
                line.running = line.running.saturating_sub(1);
                line.used += took;
            }
            lines.forget_idle(&self.tenant);
        }
        self.admission.let_in();
    }
}

/// Takes a request back that nobody waits for any more.
struct Leave<'a> {
    admission: &'a Admission,
    tenant: &'a str,
    id: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.admission.leave(self.tenant, self.id);
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("permits", &self.permits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, poll};

    const MUCH: Standing = Standing {
        running: 10,
        queued: 10,
    };

    #[tokio::test]
    async fn permits_then_queue_then_busy_and_permits_come_free_in_order() {
        let admission = Admission::new("extractions", 1, 1, TaskTracker::new());
        let first = admission.enter("a", MUCH).await.unwrap();
        let mut second = Box::pin(admission.enter("a", MUCH));
        assert!(poll!(&mut second).is_pending());
        assert_eq!((admission.running(), admission.queued()), (1, 1));
        let third = admission.enter("a", MUCH).await.map(drop).unwrap_err();
        assert!(matches!(third, Refusal::Busy { retry_after, .. } if retry_after >= Duration::from_secs(1)));
        drop(first);
        let second = second.await.unwrap();
        assert_eq!((admission.running(), admission.queued()), (1, 0));
        drop(second);
        assert_eq!(admission.running(), 0);
        assert!(
            admission.standings().is_empty(),
            "nothing is kept of who has nothing here"
        );
    }

    #[tokio::test]
    async fn leaving_the_queue_makes_room() {
        let admission = Admission::new("extractions", 1, 1, TaskTracker::new());
        let first = admission.enter("a", MUCH).await.unwrap();
        let mut second = Box::pin(admission.enter("b", MUCH));
        assert!(poll!(&mut second).is_pending());
        drop(second);
        assert!(admission.enter("b", MUCH).now_or_never().is_none());
        assert_eq!(admission.queued(), 0);
        let mut third = Box::pin(admission.enter("b", MUCH));
        assert!(poll!(&mut third).is_pending());
        drop(first);
        // The permit is on its way to somebody who leaves.
        drop(third);
        assert_eq!((admission.running(), admission.queued()), (0, 0));
    }

    #[tokio::test]
    async fn a_tenant_that_asks_for_much_leaves_room_for_others() {
        let admission = Admission::new("extractions", 2, 10, TaskTracker::new());
        let one = Standing {
            running: 1,
            queued: 1,
        };
        let _first = admission.enter("greedy", one).await.unwrap();
        let mut second = Box::pin(admission.enter("greedy", one));
        assert!(poll!(&mut second).is_pending());
        let refused = admission.enter("greedy", one).await.map(drop).unwrap_err();
        assert!(refused.to_string().contains("greedy queued="), "{refused}");
        assert!(admission.enter("other", one).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_free_permit_goes_to_who_has_the_fewest_and_then_to_who_used_the_least() {
        let admission = Admission::new("extractions", 2, 10, TaskTracker::new());
        let (one, two) = (
            admission.enter("a", MUCH).await.unwrap(),
            admission.enter("a", MUCH).await.unwrap(),
        );
        let mut more = Box::pin(admission.enter("a", MUCH));
        let mut other = Box::pin(admission.enter("b", MUCH));
        assert!(poll!(&mut more).is_pending() && poll!(&mut other).is_pending());
        drop(one);
        let other = other.await.unwrap();
        assert!(poll!(&mut more).is_pending());
        // Both have one permit now; a has used its two for a while.
        let mut again = Box::pin(admission.enter("b", MUCH));
        assert!(poll!(&mut again).is_pending());
        let (a, b) = (admission.standings()["a"], admission.standings()["b"]);
        assert_eq!((a.running, a.queued, b.running, b.queued), (1, 1, 1, 1));
        drop(two);
        let more = more.await.unwrap();
        assert!(poll!(&mut again).is_pending(), "a had none");
        drop((more, other));
        assert!(again.await.is_ok());
    }

    #[tokio::test]
    async fn where_everybody_has_one_permit_nobody_waits_for_another() {
        let lines = Admission::new("profiles", usize::MAX, 10, TaskTracker::new());
        let one = Standing { running: 1, ..MUCH };
        let first = lines.enter("greedy", one).await.unwrap();
        let mut second = Box::pin(lines.enter("greedy", one));
        assert!(poll!(&mut second).is_pending());
        assert!(lines.enter("other", one).now_or_never().is_some());
        assert_eq!(lines.asked(), 3);
        drop(first);
        assert!(second.now_or_never().is_some());
    }

    #[tokio::test]
    async fn stopping_sends_the_queue_away_and_keeps_what_runs() {
        let tracker = TaskTracker::new();
        let admission = Admission::new("extractions", 1, 4, tracker.clone());
        let first = admission.enter("a", MUCH).await.unwrap();
        let mut second = Box::pin(admission.enter("a", MUCH));
        assert!(poll!(&mut second).is_pending());
        admission.stop();
        assert_eq!(second.await.map(drop).unwrap_err(), Refusal::Stopping);
        let refused = admission.enter("a", MUCH).await.map(drop).unwrap_err();
        assert_eq!(refused, Refusal::Stopping);
        assert_eq!(tracker.len(), 1);
        drop(first);
        assert_eq!(tracker.len(), 0);
    }
}
