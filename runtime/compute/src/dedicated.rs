use crate::error::ComputeError;
use frostline_engine::{Interrupt, InterruptCause};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

type BoxedWork<T> = Box<dyn FnOnce(&mut T) + Send>;

/// A dedicated thread that owns a `T` and runs work on it sequentially. Dropping it interrupts the work and
/// joins the thread, so that no engine is running when the process exits.
pub struct Dedicated<T> {
    work: Option<mpsc::Sender<BoxedWork<T>>>,
    interrupt: Interrupt,
    thread: Option<JoinHandle<()>>,
}

const ENDED: ComputeError = ComputeError::Ended {
    part: "training thread",
};

impl<T: Send + 'static> Dedicated<T> {
    /// Starts the thread, which calls `open` and owns the result. Work on it must observe the interrupt
    /// passed to `open`.
    ///
    /// # Errors
    /// Returns the error of `open`, [`ComputeError::Thread`] if the system cannot start a thread, or
    /// [`ComputeError::Ended`] if `open` panics.
    #[expect(clippy::disallowed_methods, reason = "a job computes on a single thread")]
    pub async fn open<E: From<ComputeError> + Send + 'static>(
        open: impl FnOnce(&Interrupt) -> Result<T, E> + Send + 'static,
    ) -> Result<Self, E> {
        let (work, mut waiting) = mpsc::channel::<BoxedWork<T>>(1);
        let (answer, opened) = oneshot::channel();
        let interrupt = Interrupt::new();
        let guard = interrupt.clone();
        let thread = std::thread::Builder::new()
            .name("frostline-train".to_owned())
            .spawn(move || match open(&guard) {
                Ok(mut owned) => {
                    // A failed send means that the caller was dropped, together with the work queue.
                    let _ = answer.send(Ok(()));
                    while let Some(work) = waiting.blocking_recv() {
                        work(&mut owned);
                    }
                }
                Err(error) => drop(answer.send(Err(error))),
            });
        let dedicated = Self {
            work: Some(work),
            interrupt,
            thread: Some(thread.map_err(|source| ComputeError::Thread { source })?),
        };
        opened.await.map_err(|_| ENDED)??;
        Ok(dedicated)
    }

    /// Runs `work` on the thread and returns the result.
    ///
    /// # Errors
    /// Returns the error of `work`, or [`ComputeError::Ended`] if this or earlier work panics.
    pub async fn run<R: Send + 'static, E: From<ComputeError> + Send + 'static>(
        &self,
        work: impl FnOnce(&mut T) -> Result<R, E> + Send + 'static,
    ) -> Result<R, E> {
        let (answer, result) = oneshot::channel();
        let work: BoxedWork<T> = Box::new(move |owned| {
            // Sending fails if the caller was cancelled.
            let _ = answer.send(work(owned));
        });
        let queue = self.work.as_ref().ok_or(ENDED)?;
        queue.send(work).await.map_err(|_| ENDED)?;
        result.await.map_err(|_| ENDED)?
    }
}

impl<T> Drop for Dedicated<T> {
    fn drop(&mut self) {
        self.interrupt.trigger(InterruptCause::Cancelled);
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // The thread can only have ended early through a panic, which was already reported.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_in_order_on_one_thread() {
        let counter = Dedicated::open(|_| Ok::<_, ComputeError>(0_u32)).await.unwrap();
        for expected in 1..=3 {
            let counted = counter.run(|count| {
                *count += 1;
                Ok::<_, ComputeError>(*count)
            });
            assert_eq!(counted.await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn a_panic_ends_the_thread_and_is_an_error() {
        let broken = Dedicated::open(|_| Ok::<_, ComputeError>(())).await.unwrap();
        let outcome = broken.run::<(), ComputeError>(|()| panic!("on purpose")).await;
        assert!(matches!(outcome, Err(ComputeError::Ended { .. })));
    }
}
