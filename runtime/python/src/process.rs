//! Resources of a process. A forked child has none of the threads of the parent's runtime, and would share
//! the parent's connections and poll descriptor. Therefore the child neither uses nor drops them.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;

/// Interval between checks for Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Network tasks only move bytes. Longer work runs on separate threads.
const NETWORK_THREADS: usize = 2;

static RUNTIME: PerProcess<Runtime> = PerProcess::empty();

/// Returns the runtime of this process, and starts it on first use. The caller holds the interpreter's lock,
/// and so does a fork in Python. Therefore a fork never sees a partially initialized runtime.
///
/// # Errors
/// Raises `OSError` if the system cannot start threads.
pub(crate) fn runtime(py: Python<'_>) -> PyResult<Arc<Runtime>> {
    RUNTIME.get(py, || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(NETWORK_THREADS)
            .thread_name("frostline")
            .enable_all()
            .build()
            .map_err(|error| PyOSError::new_err(format!("cannot start threads: {error}")))
    })
}

/// Waits for `future` with the interpreter's lock released, and checks for signals such as Ctrl-C meanwhile.
/// If a signal handler raises an exception, `future` is dropped.
///
/// # Errors
/// Raises the exception of a signal handler, for example `KeyboardInterrupt`.
pub(crate) fn wait<T: Send>(py: Python<'_>, future: impl Future<Output = T> + Send) -> PyResult<T> {
    let runtime = runtime(py)?;
    let mut future = pin!(future);
    loop {
        match py.detach(|| {
            runtime.block_on(async { tokio::time::timeout(SIGNAL_INTERVAL, future.as_mut()).await })
        }) {
            Ok(done) => return Ok(done),
            Err(_) => py.check_signals()?,
        }
    }
}

/// Holds a separate value per process.
pub(crate) struct PerProcess<T>(Mutex<Option<(u32, Arc<T>)>>);

impl<T> PerProcess<T> {
    pub(crate) const fn empty() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns the value of this process, if it exists.
    pub(crate) fn existing(&self) -> Option<Arc<T>> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (owner, value) = current.as_ref()?;
        (*owner == std::process::id()).then(|| Arc::clone(value))
    }

    /// Returns the value of this process, and creates it with `make` if it does not exist. The interpreter's
    /// lock is held during the call, as for [`runtime`], so `make` must not call [`wait`].
    pub(crate) fn get(&self, _py: Python<'_>, make: impl FnOnce() -> PyResult<T>) -> PyResult<Arc<T>> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((owner, value)) = current.as_ref()
            && *owner == std::process::id()
        {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(make()?);
        std::mem::forget(current.replace((std::process::id(), Arc::clone(&value))));
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
