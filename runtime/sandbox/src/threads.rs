use crate::error::SandboxError;
use crate::meter::thread_cpu;
use async_task::{Builder, Runnable};
use frostline_batching::TurnPool;
use frostline_tensor::Cause;
use futures::FutureExt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use tracing::{Instrument, Span};

/// Threads for guest code alone. A guest that computes for long delays other guests only, and those of other tenants by no
/// more than a turn.
pub(crate) struct GuestThreads {
    pool: Arc<TurnPool<Ready>>,
    /// Its one thread runs timers; `None` only during drop.
    runtime: Option<Runtime>,
    handle: Handle,
}

/// A guest call that is ready to be polled, with its tenant.
type Ready = Runnable<Arc<str>>;

impl GuestThreads {
    /// Starts `threads` threads; `slice` is about how long guest code runs between interruptions.
    pub(crate) fn start(threads: usize, slice: Duration) -> Result<Self, SandboxError> {
        let failed = |error: std::io::Error| {
            SandboxError::host(Cause::explained("cannot start the guest threads", error))
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("guest-timers")
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let timers = handle.clone();
        let run = move |ready: Ready| {
            let _timers = timers.enter();
            ready.run();
        };
        let pool = TurnPool::start("guest", threads, slice, thread_cpu, run).map_err(failed)?;
        Ok(Self {
            pool: Arc::new(pool),
            runtime: Some(runtime),
            handle,
        })
    }

    /// Runs `call` on these threads, in turns with other tenants' calls; dropping the returned future ends it at its next
    /// interruption.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        tenant: &str,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let pool = Arc::downgrade(&self.pool);
        let call = AssertUnwindSafe(call.in_current_span()).catch_unwind();
        let (ready, task) = Builder::new().metadata(Arc::<str>::from(tenant)).spawn(
            |_| call,
            move |ready: Ready| {
                if let Some(pool) = Weak::upgrade(&pool) {
                    let tenant = Arc::clone(ready.metadata());
                    pool.push(&tenant, ready);
                }
            },
        );
        ready.schedule();
        match task.fallible().await {
            Some(Ok(output)) => Ok(output),
            Some(Err(_)) => Err(SandboxError::host("a guest call panicked in the host")),
            None => Err(SandboxError::host("the sandbox was shut down")),
        }
    }

    /// Runs blocking `work` on another thread.
    pub(crate) async fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, SandboxError> {
        let span = Span::current();
        let output = self.handle.spawn_blocking(move || span.in_scope(work)).await;
        output.map_err(|error| SandboxError::host(Cause::explained("a sandbox task failed", error)))
    }

    /// A runtime with timers, for callers outside of one.
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
