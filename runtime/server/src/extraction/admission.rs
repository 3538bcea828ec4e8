//! Which extractions run, which wait, and who is sent away.

use crate::http::Refusal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// What a client is told to wait at least and at most: less is a busy loop, more lets places stand empty.
const RETRY: (u64, u64) = (1, 30);

/// A bounded number of places, and a bounded queue before them; first come, first served.
pub(crate) struct Admission {
    places: Arc<Semaphore>,
    running: usize,
    queued_limit: usize,
    queued: AtomicUsize,
    /// How long extractions took lately, in milliseconds.
    lately: AtomicU64,
    tracker: TaskTracker,
}

/// A running extraction's place; dropping it lets the next one in.
pub(crate) struct Place {
    admission: Arc<Admission>,
    since: Instant,
    _permit: OwnedSemaphorePermit,
    _token: TaskTrackerToken,
}

impl Admission {
    /// `running` places with `queued_limit` waiting for them. Whoever holds a place is counted in `tracker`.
    pub(crate) fn new(running: usize, queued_limit: usize, tracker: TaskTracker) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(running)),
            running,
            queued_limit,
            queued: AtomicUsize::new(0),
            lately: AtomicU64::new(1000),
            tracker,
        })
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// [`Refusal::Busy`] when the queue is full, [`Refusal::Stopping`] when the host shuts down.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<Place, Refusal> {
        let permit = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = self.queue()?;
                Arc::clone(&self.places)
                    .acquire_owned()
                    .await
                    .map_err(|_| Refusal::Stopping)?
            }
        };
        let (since, token) = (Instant::now(), self.tracker.token());
        Ok(Place {
            admission: Arc::clone(self),
            since,
            _permit: permit,
            _token: token,
        })
    }

    /// Lets nobody in any more, the queue included. Whoever has a place keeps it.
    pub(crate) fn stop(&self) {
        self.places.close();
    }

    pub(crate) fn stopped(&self) -> bool {
        self.places.is_closed()
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    pub(crate) fn running(&self) -> usize {
        self.running.saturating_sub(self.places.available_permits())
    }

    fn queue(&self) -> Result<Waiting<'_>, Refusal> {
        if self.stopped() {
            return Err(Refusal::Stopping);
        }
        let one_more = |queued: usize| (queued < self.queued_limit).then_some(queued + 1);
        match self
            .queued
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
        {
            Ok(_) => Ok(Waiting(&self.queued)),
            Err(queued) => Err(self.full(queued)),
        }
    }

    /// Comes back when, at the present rate, half of the queue is served.
    fn full(&self, queued: usize) -> Refusal {
        let each = Duration::from_millis(self.lately.load(Ordering::Relaxed)).as_secs_f64();
        let seconds = (each * (queued as f64 / 2.0 + 1.0) / self.running.max(1) as f64).ceil() as u64;
        Refusal::Busy {
            message: format!(
                "{} extractions run and {queued} wait on this host, which is all it takes",
                self.running
            ),
            retry_after: Duration::from_secs(seconds.clamp(RETRY.0, RETRY.1)),
        }
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

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.took(self.since.elapsed());
    }
}

/// A place in the queue.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, poll};

    #[tokio::test]
    async fn places_then_queue_then_busy_and_places_come_free_in_order() {
        let admission = Admission::new(1, 1, TaskTracker::new());
        let first = admission.enter().await.unwrap();
        let mut second = Box::pin(admission.enter());
        assert!(poll!(&mut second).is_pending());
        assert_eq!((admission.running(), admission.queued()), (1, 1));
        let third = admission.enter().await.map(|_| ()).unwrap_err();
        assert!(matches!(third, Refusal::Busy { retry_after, .. } if retry_after >= Duration::from_secs(1)));
        drop(first);
        let second = second.await.unwrap();
        assert_eq!((admission.running(), admission.queued()), (1, 0));
        drop(second);
        assert_eq!(admission.running(), 0);
    }

    #[tokio::test]
    async fn leaving_the_queue_makes_room() {
        let admission = Admission::new(1, 1, TaskTracker::new());
        let _first = admission.enter().await.unwrap();
        let mut second = Box::pin(admission.enter());
        assert!(poll!(&mut second).is_pending());
        drop(second);
        assert!(admission.enter().now_or_never().is_none());
        assert_eq!(admission.queued(), 0);
    }

    #[tokio::test]
    async fn stopping_sends_the_queue_away_and_keeps_what_runs() {
        let tracker = TaskTracker::new();
        let admission = Admission::new(1, 4, tracker.clone());
        let first = admission.enter().await.unwrap();
        let mut second = Box::pin(admission.enter());
        assert!(poll!(&mut second).is_pending());
        admission.stop();
        assert_eq!(second.await.map(|_| ()).unwrap_err(), Refusal::Stopping);
        assert_eq!(
            admission.enter().await.map(|_| ()).unwrap_err(),
            Refusal::Stopping
        );
        assert_eq!(tracker.len(), 1);
        drop(first);
        assert_eq!(tracker.len(), 0);
    }
}
