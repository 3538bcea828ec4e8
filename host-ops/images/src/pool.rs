use crate::ImageError;
use frostline_batching::{Lock, TurnPool};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// What a piece of work is taken to last until it is done: a photo of half a megapixel takes 2 to 5 ms on a core.
const TURN: Duration = Duration::from_millis(5);

type Work = Box<dyn FnOnce() + Send>;

/// A bounded number of decoding threads that everything in a process shares, in turns between tenants by the time they
/// hold a thread; within a tenant, first come, first served.
///
/// Work is never interrupted, so it should come in small pieces: one image, or the rows of one answer. Clones share the
/// threads; they end when the last clone is dropped. Work whose future was dropped before a thread took it up is never begun.
#[derive(Clone)]
pub struct DecodePool {
    threads: Arc<Threads>,
    tenant: Arc<str>,
    /// The tenant's: one permit per thread and one more to have waiting, so the queue holds no more than that of anybody's.
    permits: Arc<Semaphore>,
}

/// There until the last handle is dropped.
struct Threads {
    pool: TurnPool<Work>,
    /// Of tenants that have a handle.
    permits: Lock<BTreeMap<Arc<str>, Weak<Semaphore>>>,
}

/// Takes work back that nobody waits for any more.
struct TakeBack<'a> {
    pool: &'a TurnPool<Work>,
    work: u64,
}

impl DecodePool {
    /// Starts `threads` threads (at least one), for a tenant without a name.
    ///
    /// # Errors
    /// The operating system's own when it gives no thread.
    pub fn start(threads: usize) -> std::io::Result<Self> {
        let since = Instant::now();
        let clock = move || since.elapsed();
        let started = Threads {
            pool: TurnPool::start("decode", threads, TURN, clock, |work: Work| work())?,
            permits: Lock::default(),
        };
        Ok(Self::with_permits(Arc::new(started), ""))
    }

    /// The same threads on a tenant's behalf: what they do for it takes turns with what they do for others.
    pub fn for_tenant(&self, tenant: &str) -> Self {
        Self::with_permits(Arc::clone(&self.threads), tenant)
    }

    fn with_permits(threads: Arc<Threads>, tenant: &str) -> Self {
        let tenant = Arc::from(tenant);
        Self {
            permits: threads.permits(&tenant),
            threads,
            tenant,
        }
    }

    /// How many threads decode.
    pub fn threads(&self) -> usize {
        self.threads.pool.threads()
    }

    /// Runs `work` on a decoding thread and returns its result. Dropping the future before a thread took the work up means it
    /// never runs.
    ///
    /// # Errors
    /// [`ImageError::PoolClosed`] when the work did not come back, because it panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ImageError> {
        let closed = |_| ImageError::PoolClosed;
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(closed)?;
        let (answer, result) = oneshot::channel();
        let work = Box::new(move || {
            let _permit = permit;
            // Nobody waits any more when this fails.
            let _ = answer.send(work());
        });
        let pool = &self.threads.pool;
        let take_back = TakeBack {
            pool,
            work: pool.push(&self.tenant, work),
        };
        let result = result.await;
        // A thread has taken it up.
        std::mem::forget(take_back);
        result.map_err(|_| ImageError::PoolClosed)
    }
}

impl Threads {
    /// The tenant's permits, which all of its handles share.
    fn permits(&self, tenant: &Arc<str>) -> Arc<Semaphore> {
        let mut permits = self.permits.lock();
        if let Some(known) = permits.get(tenant).and_then(Weak::upgrade) {
            return known;
        }
        permits.retain(|_, others| others.strong_count() > 0);
        let new = Arc::new(Semaphore::new(self.pool.threads() * 2));
        permits.insert(Arc::clone(tenant), Arc::downgrade(&new));
        new
    }
}

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        self.pool.remove(self.work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::{join, join_all};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn a_panic_costs_only_its_own_answer() {
        let pool = DecodePool::start(1).unwrap();
        assert_eq!(
            pool.run(|| panic!("on purpose")).await,
            Err::<(), _>(ImageError::PoolClosed)
        );
        assert_eq!(pool.run(|| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn work_nobody_waits_for_is_never_begun() {
        let pool = DecodePool::start(1).unwrap();
        let ((release, gate), (at_work, taken_up)) = (channel::<()>(), channel());
        let begun = Arc::new(AtomicBool::new(false));
        let busy = pool.run(move || at_work.send(()).map(|()| gate.recv()));
        let abandoned = {
            let (pool, begun) = (pool.clone(), Arc::clone(&begun));
            async move { pool.run(move || begun.store(true, Ordering::SeqCst)).await }
        };
        let (mut busy, mut abandoned) = (Box::pin(busy), Box::pin(abandoned));
        assert!(futures::poll!(&mut busy).is_pending());
        taken_up.recv().unwrap();
        assert!(futures::poll!(&mut abandoned).is_pending());
        drop(abandoned);
        assert_eq!(pool.threads.pool.waiting(), 0);
        release.send(()).unwrap();
        // The thread takes work in order: once the later one is done, the abandoned one was passed over.
        let (first, second) = join(busy, pool.run(|| ())).await;
        assert!(first.is_ok() && second.is_ok());
        assert!(!begun.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_tenant_with_slow_pieces_takes_no_more_time_than_one_with_quick_ones() {
        let pool = DecodePool::start(1).unwrap();
        let (slow, quick) = (pool.for_tenant("slow"), pool.for_tenant("quick"));
        let begun = Arc::new(AtomicUsize::new(0));
        let piece = |_| {
            let begun = Arc::clone(&begun);
            slow.run(move || {
                begun.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(TURN * 4);
            })
        };
        let mut slow = join_all((0..100).map(piece));
        assert!(futures::poll!(&mut slow).is_pending());
        let quick = join_all((0..10).map(|_| quick.run(|| std::thread::sleep(TURN / 5))));
        let done = tokio::select! {
            done = quick => done,
            _ = slow => panic!("the slow tenant's work went first"),
        };
        assert!(done.iter().all(Result::is_ok));
        // By time it is three; the rest is for a machine that is late.
        let begun = begun.load(Ordering::SeqCst);
        assert!((1..50).contains(&begun), "{begun}");
    }

    #[tokio::test]
    async fn no_tenant_has_more_in_the_queue_than_its_permits() {
        let pool = DecodePool::start(1).unwrap();
        let ((release, gate), (at_work, begun)) = (channel::<()>(), channel());
        let mut busy = Box::pin(pool.run(move || at_work.send(()).map(|()| gate.recv())));
        assert!(futures::poll!(&mut busy).is_pending());
        begun.recv().unwrap();
        let handles = [pool.for_tenant("a"), pool.for_tenant("a"), pool.for_tenant("b")];
        let mut waiting = join_all(
            handles
                .iter()
                .flat_map(|handle| (0..9).map(|_| handle.run(|| ()))),
        );
        assert!(futures::poll!(&mut waiting).is_pending());
        assert_eq!(pool.threads.pool.waiting(), 4);
        release.send(()).unwrap();
        let (first, rest) = join(busy, waiting).await;
        assert!(first.is_ok() && rest.iter().all(Result::is_ok));
        drop(handles);
        // A thread gives a permit back after its answer: once it has taken up something else, it has.
        let another = pool.for_tenant("c");
        another.run(|| ()).await.unwrap();
        let _newcomer = pool.for_tenant("d");
        assert_eq!(pool.threads.permits.lock().len(), 3);
    }
}
