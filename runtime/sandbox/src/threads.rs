use crate::error::SandboxError;
use async_task::{Builder, Runnable};
use frostline_batching::{Charge, Permit, Stop, TurnPool, Unfinished, run_blocking, thread_cpu};
use frostline_tensor::Cause;
use futures::FutureExt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};
use tracing::{Instrument, Span};

/// Threads for guest code only. A long computation delays other guests, but guests of other tenants by no
/// more than a turn.
pub(crate) struct GuestThreads {
    pool: Arc<TurnPool<Ready>>,
    /// Runtime for timers and blocking work. `None` only during drop.
    runtime: Option<Runtime>,
    handle: Handle,
}

/// Guest call that is ready to be polled.
type Ready = Runnable<Owner>;

/// Tenant of a guest call, and the account for the CPU time.
#[derive(Clone)]
struct Owner {
    tenant: Arc<str>,
    account: Charge,
}

impl GuestThreads {
    /// Starts `threads` threads. `slice` is the expected time between interruptions of guest code.
    pub(crate) fn start(threads: usize, slice: Duration) -> Result<Self, SandboxError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("prepare")
            .enable_all()
            .build()
            .map_err(cannot_start)?;
        let handle = runtime.handle().clone();
        let timers = handle.clone();
        let pool = TurnPool::start("guest", threads, slice, thread_cpu, move |ready: Ready| {
            let _timers = timers.enter();
            let account = ready.metadata().account.clone();
            account.measure(|| ready.run());
        })
        .map_err(cannot_start)?;
        Ok(Self {
            pool: Arc::new(pool),
            runtime: Some(runtime),
            handle,
        })
    }

    /// Runs `call` on these threads, in turns with the calls of other tenants. The CPU time is paid from `account`.
    /// Dropping the future ends the call at the next interruption.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        tenant: &str,
        account: Charge,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, SandboxError> {
        let pool = Arc::downgrade(&self.pool);
        let call = Charge::current().pay_for(call).in_current_span();
        let call = AssertUnwindSafe(call).catch_unwind();
        let owner = Owner {
            tenant: Arc::from(tenant),
            account,
        };
        let (ready, task) = Builder::new().metadata(owner).spawn(
            |_| call,
            move |ready: Ready| {
                if let Some(pool) = Weak::upgrade(&pool) {
                    let tenant = Arc::clone(&ready.metadata().tenant);
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

    /// Prepares a guest on a separate thread; see [`frostline_batching::run_blocking`].
    pub(crate) fn prepare<T: Send + 'static, W: FnOnce(&Stop) -> T + Send + 'static>(
        &self,
        permit: Permit,
        deadline: Duration,
        charge: Charge,
        work: W,
    ) -> impl Future<Output = Result<T, SandboxError>> + Send + use<T, W> {
        let span = Span::current();
        let _runtime = self.handle.enter();
        let done = run_blocking(permit, deadline, charge, move |stop| span.in_scope(|| work(stop)));
        async move {
            done.await.map_err(|error| match error {
                Unfinished::Deadline(after) => SandboxError::PrepareDeadline { after },
                other => SandboxError::host(Cause::with_message("a sandbox task failed", other)),
            })
        }
    }

    /// Runtime handle with timers for callers outside of a Tokio runtime.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

fn cannot_start(error: std::io::Error) -> SandboxError {
    SandboxError::host(Cause::with_message("cannot start the guest threads", error))
}

impl Drop for GuestThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
