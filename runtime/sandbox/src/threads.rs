use crate::error::SandboxError;
use std::future::Future;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::AbortOnDropHandle;

/// The threads guest code runs on, and nothing else: a guest that computes for long delays other guests at most.
pub(crate) struct GuestThreads {
    /// There until dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl GuestThreads {
    pub(crate) fn start(threads: usize) -> Result<Self, SandboxError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(1))
            .max_blocking_threads(2)
            .thread_name("guest")
            // One slice of guest code takes a whole tick; deadlines and new calls are looked for after each.
            .event_interval(1)
            .global_queue_interval(1)
            .enable_all()
            .build()
            .map_err(|error| SandboxError::host(format!("cannot start the threads of guests: {error}")))?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// Runs `call` on these threads; dropping the returned future ends it at its next interruption.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        joined(AbortOnDropHandle::new(self.handle.spawn(call)).await)
    }

    /// Runs `work` beside these threads.
    pub(crate) async fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, SandboxError> {
        joined(self.handle.spawn_blocking(work).await)
    }

    /// The runtime of these threads.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for GuestThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn joined<T>(result: Result<T, tokio::task::JoinError>) -> Result<T, SandboxError> {
    result.map_err(|lost| SandboxError::host(format!("a task of the sandbox was lost: {lost}")))
}
