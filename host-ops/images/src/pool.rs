use crate::encoded::{EncodedImage, Unreserved};
use crate::{DecodeLimits, DecodeRoom, Guard, ImageError, LoaderOptions};
use frostline_batching::{Charge, TenantPermits, TurnPool};
use frostline_tensor::{OpError, PixelSpec, View};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// Estimated duration of a running work item. Decoding half a megapixel needs 2 to 5 ms on a core.
const TURN: Duration = Duration::from_millis(5);

type DecodeTask = Box<dyn FnOnce() + Send>;

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
    /// Pays for the threads.
    charge: Charge,
}

/// Unit of reservations in bytes, because a semaphore has only 32 bits.
const MEMORY_UNIT: u64 = 1 << 20;

fn memory_units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(MEMORY_UNIT)).unwrap_or(u32::MAX)
}

/// Reason why an image was not passed on.
#[derive(Debug)]
pub(crate) enum LoadError<E> {
    Image(ImageError),
    /// The memory was refused.
    Memory(E),
}

impl<E> From<ImageError> for LoadError<E> {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

/// State shared by all handles.
struct Threads {
    pool: TurnPool<DecodeTask>,
    permits: TenantPermits,
}

/// Removes queued work when the caller's future is dropped.
struct RemoveOnDrop<'a> {
    pool: &'a TurnPool<DecodeTask>,
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
        let pool = TurnPool::start(
            "decode",
            threads,
            TURN,
            move || since.elapsed(),
            |work: DecodeTask| work(),
        )?;
        let started = Threads {
            permits: TenantPermits::new(pool.threads() * 2),
            pool,
        };
        let threads = Arc::new(started);
        let tenant = Arc::from("");
        let limits = DecodeLimits::default();
        Ok(Self {
            permits: threads.permits.for_tenant(&tenant),
            threads,
            tenant,
            limits,
            memory: Arc::new(Semaphore::new(memory_units(limits.max_bytes) as usize)),
            charge: Charge::default(),
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

    /// Returns a handle that submits work to the same threads on behalf of `tenant`. The CPU time is paid from
    /// `charge`.
    pub fn for_tenant(&self, tenant: &str, charge: Charge) -> Self {
        let tenant = Arc::from(tenant);
        Self {
            permits: self.threads.permits.for_tenant(&tenant),
            tenant,
            charge,
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
        let options = LoaderOptions {
            decode: self.limits,
            view,
            ..LoaderOptions::default()
        };
        let image = EncodedImage::new(object, key, spec, &options);
        let memory = Arc::clone(&self.memory);
        match self
            .load_with(
                image,
                |bytes| memory.acquire_many_owned(memory_units(bytes)),
                |_, crop| crop,
            )
            .await
        {
            Ok(crop) => crop,
            Err(LoadError::Image(error)) => Err(error),
            Err(LoadError::Memory(_)) => Err(ImageError::PoolClosed),
        }
    }

    /// Decodes an object like [`Self::load`], with the limits and memory of `options`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::load`], and that of the memory if it is refused.
    pub async fn load_as(
        &self,
        object: impl AsRef<[u8]> + Send + 'static,
        spec: PixelSpec,
        key: String,
        options: &LoaderOptions,
    ) -> Result<Vec<u8>, OpError> {
        let image = EncodedImage::new(object, key, spec, options);
        match self
            .load_with(
                image,
                |bytes| reserve_in(options.room.as_deref(), bytes),
                |_, crop| crop,
            )
            .await
        {
            Ok(crop) => Ok(crop?),
            Err(LoadError::Image(error)) => Err(error.into()),
            Err(LoadError::Memory(error)) => Err(error),
        }
    }

    /// Loads an image on a thread and passes the result to `finish` on the same thread. The headers of a large
    /// image are parsed first, and the thread serves other images until `reserve` has returned the memory.
    pub(crate) async fn load_with<B, G, E, F, T>(
        &self,
        image: EncodedImage<B>,
        reserve: impl FnOnce(u64) -> F,
        finish: impl FnOnce(&EncodedImage<B>, Result<Vec<u8>, ImageError>) -> T + Send + 'static,
    ) -> Result<T, LoadError<E>>
    where
        B: AsRef<[u8]> + Send + 'static,
        G: Send + 'static,
        F: Future<Output = Result<G, E>>,
        T: Send + 'static,
    {
        let headers = move || match image.load_unreserved() {
            Ok(Unreserved::Large(needed)) => Err(Box::new((needed, image, finish))),
            Ok(Unreserved::Loaded(crop)) => Ok(finish(&image, Ok(crop))),
            Err(error) => Ok(finish(&image, Err(error))),
        };
        let (needed, image, finish) = match self.run(headers).await? {
            Ok(finished) => return Ok(finished),
            Err(large) => *large,
        };
        let memory = reserve(needed).await.map_err(LoadError::Memory)?;
        Ok(self
            .run(move || {
                let finished = finish(&image, image.load());
                drop(image);
                drop(memory);
                finished
            })
            .await?)
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
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| ImageError::PoolClosed)?;
        let (answer, result) = oneshot::channel();
        let charge = self.charge.clone();
        let work = Box::new(move || {
            let _permit = permit;
            // Sending fails if the caller dropped the future.
            let _ = answer.send(charge.measure(work));
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

/// Waits for memory from `room`, if there is one.
pub(crate) async fn reserve_in(room: Option<&dyn DecodeRoom>, bytes: u64) -> Result<Option<Guard>, OpError> {
    match room {
        Some(room) => room.reserve(bytes).await.map(Some),
        None => Ok(None),
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
        let (release, gate) = channel::<()>();
        let (at_work, taken_up) = channel();
        let begun = Arc::new(AtomicBool::new(false));
        let busy = pool.run(move || at_work.send(()).map(|()| gate.recv()));
        let abandoned = {
            let pool = pool.clone();
            let begun = Arc::clone(&begun);
            async move { pool.run(move || begun.store(true, Ordering::SeqCst)).await }
        };
        let mut busy = Box::pin(busy);
        let mut abandoned = Box::pin(abandoned);
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
        let [slow, quick] = ["slow", "quick"].map(|tenant| pool.for_tenant(tenant, Charge::default()));
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
        let (release, gate) = channel::<()>();
        let (at_work, begun) = channel();
        let mut busy = Box::pin(pool.run(move || at_work.send(()).map(|()| gate.recv())));
        assert!(futures::poll!(&mut busy).is_pending());
        begun.recv().unwrap();
        let handles = ["a", "a", "b"].map(|tenant| pool.for_tenant(tenant, Charge::default()));
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
    }
}
