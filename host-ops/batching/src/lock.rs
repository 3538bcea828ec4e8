use std::sync::{MutexGuard, PoisonError};

/// A mutex for what may live in a program that forks, such as one in Python. Who waits for it is known to the system alone: locks that
/// keep a list of waiting threads of their own, as parking_lot's do, leave threads on it that are not there after a fork, and the
/// child stumbles over them. A panic of who held it is no matter to the next.
#[derive(Debug, Default)]
pub struct Lock<T>(std::sync::Mutex<T>);

impl<T> Lock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits for it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
