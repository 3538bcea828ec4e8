use crate::resize::{preparation_memory, preprocess};
use crate::{DecodeLimits, ImageError, LoaderOptions, Undecoded, load_augmented};
use frostline_batching::{Lock, TurnPool};
use frostline_tensor::{PixelSpec, View};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// Estimated duration of a running work item. Decoding half a megapixel needs 2 to 5 ms on a core.
const TURN: Duration = Duration::from_millis(5);

type Work = Box<dyn FnOnce() + Send>;

/// Bounded set of decoding threads for the process. The tenant that has used the least thread time is served
/// next. Work of the same tenant is executed in order of arrival.
///
/// Running work is never interrupted, so submit small work items, such as a single image or the rows of an
/// answer. Clones share the threads, which end when the last clone is dropped. Dropping a future cancels work
/// that no thread has started.
#[derive(Clone)]
pub struct DecodePool {
    threads: Arc<Threads>,
    tenant: Arc<str>,
    /// Permits of the tenant, two per thread. They limit the tenant's queued work.
    permits: Arc<Semaphore>,
    limits: DecodeLimits,
    /// Memory for the large images of [`DecodePool::load`], in units of [`MEMORY_UNIT`].
    memory: Arc<Semaphore>,
}

/// Unit of reservations in bytes, because a semaphore has only 32 bits.
const MEMORY_UNIT: u64 = 1 << 20;

fn memory_units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(MEMORY_UNIT)).unwrap_or(u32::MAX)
}

/// Result of the first attempt to load an object.
enum Attempt<B> {
    Loaded(Vec<u8>),
    /// The image needs a reservation.
    Large {
        needed: u64,
        object: B,
    },
}

impl<B: AsRef<[u8]>> Attempt<B> {
    /// Loads an object unless the image is large.
    fn load(
        object: B,
        spec: &PixelSpec,
        limits: &DecodeLimits,
        view: Option<&View>,
        key: &str,
    ) -> Result<Self, ImageError> {
        spec.check()?;
        let image = Undecoded::read(object.as_ref(), limits)?;
        let needed = preparation_memory(&image, spec, view.is_some());
        limits.check_bytes(image.format(), needed)?;
        if needed >= LoaderOptions::RESERVATION_THRESHOLD {
            drop(image);
            return Ok(Self::Large { needed, object });
        }
        Ok(Self::Loaded(preprocess(&image.decode()?, spec, view, key)?))
    }
}

/// State shared by all handles.
struct Threads {
    pool: TurnPool<Work>,
    /// Permits by tenant. Entries without handles are removed.
    permits: Lock<BTreeMap<Arc<str>, Weak<Semaphore>>>,
}

/// Removes queued work when the caller's future is dropped.
struct RemoveOnDrop<'a> {
    pool: &'a TurnPool<Work>,
    work: u64,
}

impl DecodePool {
    /// Starts `threads` threads, or one if `threads` is 0. The handle belongs to the tenant with the empty
    /// name.
    ///
    /// # Errors
    /// Returns the operating system's error if a thread cannot be created.
    pub fn start(threads: usize) -> std::io::Result<Self> {
        let since = Instant::now();
        let clock = move || since.elapsed();
        let started = Threads {
            pool: TurnPool::start("decode", threads, TURN, clock, |work: Work| work())?,
            permits: Lock::default(),
        };
        let threads = Arc::new(started);
        let tenant = Arc::from("");
        let limits = DecodeLimits::default();
        Ok(Self {
            permits: threads.permits(&tenant),
            threads,
            tenant,
            limits,
            memory: Arc::new(Semaphore::new(memory_units(limits.max_bytes) as usize)),
        })
    }

    /// Sets the limits of images for [`Self::load`].
    #[must_use]
    pub fn with_limits(self, limits: DecodeLimits) -> Self {
        Self {
            limits,
            memory: Arc::new(Semaphore::new(memory_units(limits.max_bytes) as usize)),
            ..self
        }
    }

    /// Returns a handle that submits work to the same threads on behalf of `tenant`.
    pub fn for_tenant(&self, tenant: &str) -> Self {
        let tenant = Arc::from(tenant);
        Self {
            permits: self.threads.permits(&tenant),
            tenant,
            ..self.clone()
        }
    }

    /// Decodes an object on a thread like [`load_augmented`]. All images that need
    /// [`LoaderOptions::RESERVATION_THRESHOLD`] bytes or more together use no more memory than a single image
    /// may use. They wait for each other without occupying a thread.
    ///
    /// # Errors
    /// Returns the errors of [`load_augmented`], and [`ImageError::Panicked`] if decoding panicked.
    pub async fn load(
        &self,
        object: impl AsRef<[u8]> + Send + 'static,
        spec: PixelSpec,
        view: Option<View>,
        key: String,
    ) -> Result<Vec<u8>, ImageError> {
        let limits = self.limits;
        let first = {
            let key = key.clone();
            move || Attempt::load(object, &spec, &limits, view.as_ref(), &key)
        };
        let (needed, object) = match self.run(first).await?? {
            Attempt::Loaded(crop) => return Ok(crop),
            Attempt::Large { needed, object } => (needed, object),
        };
        let reserved = self.memory.acquire_many(memory_units(needed)).await;
        let _reserved = reserved.map_err(|_| ImageError::PoolClosed)?;
        self.run(move || load_augmented(object.as_ref(), &spec, &limits, view.as_ref(), &key))
            .await?
    }

    /// Returns the number of decoding threads.
    pub fn threads(&self) -> usize {
        self.threads.pool.threads()
    }

    /// Executes `work` on a decoding thread and returns its result. If the future is dropped before a thread
    /// takes the work, it never runs.
    ///
    /// # Errors
    /// Returns [`ImageError::Panicked`] if the work panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ImageError> {
        let closed = |_| ImageError::PoolClosed;
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(closed)?;
        let (answer, result) = oneshot::channel();
        let work = Box::new(move || {
            let _permit = permit;
            // Sending fails if the caller dropped the future.
            let _ = answer.send(work());
        });
        let pool = &self.threads.pool;
        let take_back = RemoveOnDrop {
            pool,
            work: pool.push(&self.tenant, work),
        };
        let result = result.await;
        // A thread has already taken the work, so removing it is unnecessary.
        std::mem::forget(take_back);
        // The threads run until the last handle is dropped, so only a panic drops the answer.
        result.map_err(|_| ImageError::Panicked)
    }
}

impl Threads {
    /// Returns the permits that all handles of the tenant share.
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

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        self.pool.remove(self.work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::OpError;
    use futures::future::{join, join_all};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn a_panic_costs_only_its_own_answer() {
        let pool = DecodePool::start(1).unwrap();
        assert_eq!(
            pool.run(|| panic!("on purpose")).await,
            Err::<(), _>(ImageError::Panicked)
        );
        // Clients retry failures that a host caused, but the same image fails again.
        assert!(!OpError::from(ImageError::Panicked).host_caused);
        assert_eq!(pool.run(|| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn abandoned_work_never_runs() {
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
        // Threads take work in order. Once the later work is done, the dropped work was skipped.
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
        // Dividing by time gives three. The margin allows for slow machines.
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
        // The thread releases a permit after sending the answer, so run another work item before counting.
        let another = pool.for_tenant("c");
        another.run(|| ()).await.unwrap();
        let _newcomer = pool.for_tenant("d");
        assert_eq!(pool.threads.permits.lock().len(), 3);
    }
}
