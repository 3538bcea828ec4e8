//! What belongs to one process. After a fork no thread of the parent's runtime is there, its connections are the parent's, and its
//! poll descriptor is shared with it: nothing of that is used or even dropped in the child.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How soon Ctrl-C is seen.
const LOOK: Duration = Duration::from_millis(100);

/// Network tasks only move bytes; what takes longer has threads of its own.
const NETWORK_THREADS: usize = 2;

static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// This process' runtime, started when it is first asked for. As the caller holds the interpreter's lock, and forks hold it too, no fork
/// finds this half done.
///
/// # Errors
/// `OSError` when the system gives no threads.
pub(crate) fn runtime(_py: Python<'_>) -> PyResult<&'static Runtime> {
    let process = std::process::id();
    let mut current = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((owner, runtime)) = *current
        && owner == process
    {
        return Ok(runtime);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(NETWORK_THREADS)
        .thread_name("frostline")
        .enable_all()
        .build()
        .map_err(|error| PyOSError::new_err(format!("cannot start threads: {error}")))?;
    let runtime = Box::leak(Box::new(runtime));
    *current = Some((process, runtime));
    Ok(runtime)
}

/// Waits for `future` with the interpreter's lock released, and looks for Ctrl-C meanwhile. What it returns when that comes leaves the
/// future to its owner.
///
/// # Errors
/// `KeyboardInterrupt`, or what else a signal's handler raises.
pub(crate) fn wait<T: Send>(py: Python<'_>, future: impl Future<Output = T> + Send) -> PyResult<T> {
    let runtime = runtime(py)?;
    let mut future = pin!(future);
    loop {
        let look = || runtime.block_on(async { tokio::time::timeout(LOOK, future.as_mut()).await });
        match py.detach(look) {
            Ok(done) => return Ok(done),
            Err(_) => py.check_signals()?,
        }
    }
}

/// Something that is made anew in each process that uses it.
pub(crate) struct PerProcess<T>(Mutex<Option<(u32, Arc<T>)>>);

impl<T> PerProcess<T> {
    pub(crate) const fn empty() -> Self {
        Self(Mutex::new(None))
    }

    /// This process' own, where there is one already.
    pub(crate) fn present(&self) -> Option<Arc<T>> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (owner, value) = current.as_ref()?;
        (*owner == std::process::id()).then(|| Arc::clone(value))
    }

    /// This process' own, made by `make` where there is none yet. The interpreter's lock is held meanwhile, as for [`runtime`], so
    /// `make` must not [`wait`].
    pub(crate) fn get(&self, _py: Python<'_>, make: impl FnOnce() -> PyResult<T>) -> PyResult<Arc<T>> {
        let process = std::process::id();
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((owner, value)) = current.as_ref()
            && *owner == process
        {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(make()?);
        std::mem::forget(current.replace((process, Arc::clone(&value))));
        Ok(value)
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let current = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if current
            .as_ref()
            .is_some_and(|(owner, _)| *owner != std::process::id())
        {
            std::mem::forget(current);
        }
    }
}
