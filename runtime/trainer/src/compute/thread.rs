use crate::TrainerError;
use frostline_engine::{Device, Interrupt, InterruptCause, SessionOptions};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// Returns session options with `wanted` threads, or one thread per core if `wanted` is 0.
pub(crate) fn session_options(device: Device, wanted: usize) -> SessionOptions {
    SessionOptions {
        device,
        threads: if wanted == 0 {
            std::thread::available_parallelism().map_or(1, usize::from)
        } else {
            wanted
        },
        ..SessionOptions::default()
    }
}

/// Runs graph work on a blocking thread. It can take seconds for large networks and must not delay network
/// I/O.
#[expect(clippy::disallowed_methods, reason = "clients and trainers have no tenants")]
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TrainerError> + Send + 'static,
) -> Result<T, TrainerError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| TrainerError::Ended { part: "graph work" })?
}

type Work<T> = Box<dyn FnOnce(&mut T) + Send>;

/// A dedicated thread that owns a `T` and runs work on it sequentially. Dropping it interrupts the work and
/// joins the thread, so that no engine is running when the process exits.
pub(crate) struct Dedicated<T> {
    work: Option<mpsc::Sender<Work<T>>>,
    interrupt: Interrupt,
    thread: Option<JoinHandle<()>>,
}

const ENDED: TrainerError = TrainerError::Ended {
    part: "training thread",
};

impl<T: Send + 'static> Dedicated<T> {
    /// Starts the thread, which calls `open` and owns the result. Work on it must observe the interrupt
    /// passed to `open`.
    #[expect(clippy::disallowed_methods, reason = "a job computes on a single thread")]
    pub(crate) async fn open(
        open: impl FnOnce(&Interrupt) -> Result<T, TrainerError> + Send + 'static,
    ) -> Result<Self, TrainerError> {
        let (work, mut waiting) = mpsc::channel::<Work<T>>(1);
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
            thread: Some(thread.map_err(|source| TrainerError::Thread { source })?),
        };
        opened.await.map_err(|_| ENDED)??;
        Ok(dedicated)
    }

    /// Runs `work` on the thread and returns the result.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut T) -> Result<R, TrainerError> + Send + 'static,
    ) -> Result<R, TrainerError> {
        let (answer, result) = oneshot::channel();
        let work: Work<T> = Box::new(move |owned| {
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
        let counter = Dedicated::open(|_| Ok(0_u32)).await.unwrap();
        for expected in 1..=3 {
            let counted = counter.run(|count| {
                *count += 1;
                Ok(*count)
            });
            assert_eq!(counted.await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn a_panic_ends_the_thread_and_is_an_error() {
        let broken = Dedicated::open(|_| Ok(())).await.unwrap();
        let outcome = broken.run::<()>(|()| panic!("on purpose")).await;
        assert!(matches!(outcome, Err(TrainerError::Ended { .. })));
    }
}
