use crate::ImageError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, oneshot};

type Work = Box<dyn FnOnce() + Send>;

/// A bounded number of decoding threads that every job of a process shares, first come, first served.
///
/// Clones share the threads; they end when the last clone is dropped. Work whose future was dropped before a thread took it up
/// is never begun.
#[derive(Clone)]
pub struct DecodePool {
    queue: Sender<Work>,
    /// One permit per thread and one more to have waiting, so the queue holds no more than that and waiting jobs take turns.
    places: Arc<Semaphore>,
    threads: usize,
}

impl DecodePool {
    /// Starts `threads` threads (at least one).
    ///
    /// # Errors
    /// The operating system's own when it gives no thread.
    pub fn start(threads: usize) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let (queue, waiting) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        for number in 0..threads {
            let waiting = Arc::clone(&waiting);
            std::thread::Builder::new()
                .name(format!("decode-{number}"))
                .spawn(move || serve(&waiting))?;
        }
        Ok(Self {
            queue,
            places: Arc::new(Semaphore::new(threads * 2)),
            threads,
        })
    }

    /// How many threads decode.
    pub fn threads(&self) -> usize {
        self.threads
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
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(closed)?;
        let (answer, result) = oneshot::channel();
        let work = Box::new(move || {
            let _place = place;
            if !answer.is_closed() {
                // Nobody waits any more when this fails.
                let _ = answer.send(work());
            }
        });
        self.queue.send(work).map_err(|_| ImageError::PoolClosed)?;
        result.await.map_err(|_| ImageError::PoolClosed)
    }
}

fn serve(waiting: &Mutex<Receiver<Work>>) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(work) = next else { return };
        // A panic costs its own answer, not the thread.
        let _ = catch_unwind(AssertUnwindSafe(work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join;
    use std::sync::atomic::{AtomicBool, Ordering};

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
        let (release, gate) = channel::<()>();
        let begun = Arc::new(AtomicBool::new(false));
        let busy = pool.run(move || gate.recv());
        let abandoned = {
            let (pool, begun) = (pool.clone(), Arc::clone(&begun));
            async move { pool.run(move || begun.store(true, Ordering::SeqCst)).await }
        };
        let (mut busy, mut abandoned) = (Box::pin(busy), Box::pin(abandoned));
        assert!(futures::poll!(&mut busy).is_pending());
        assert!(futures::poll!(&mut abandoned).is_pending());
        drop(abandoned);
        release.send(()).unwrap();
        // The thread takes work in order: once the later one is done, the abandoned one was passed over.
        let (first, second) = join(busy, pool.run(|| ())).await;
        assert!(first.is_ok() && second.is_ok());
        assert!(!begun.load(Ordering::SeqCst));
    }
}
