use std::sync::{MutexGuard, PoisonError};

/// A mutex for programs that may fork, such as Python programs.
///
/// Waiting threads are only known to the operating system. Locks with a separate list of waiting threads,
/// such as parking_lot's, keep threads in it that do not exist after a fork, which corrupts the child. A
/// panic while the lock is held does not poison it.
#[derive(Debug, Default)]
pub struct Lock<T>(std::sync::Mutex<T>);

impl<T> Lock<T> {
    /// Creates a lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Blocks until the lock is acquired.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
