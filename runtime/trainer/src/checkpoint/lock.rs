//! Prevents concurrent jobs in a run folder.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

const LOCK: &str = "lock";

/// Lock on a run folder, released on drop.
pub(crate) struct RunLock {
    _lock: File,
}

/// Locks a run's folder; `None` if another job holds it. [`is_locked`] holds it for an instant, so this retries.
pub(super) fn lock(folder: &Path) -> io::Result<Option<RunLock>> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join(LOCK))?;
    for _ in 0..ATTEMPTS {
        if try_lock(&file)? {
            return Ok(Some(RunLock { _lock: file }));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(None)
}

/// Attempts to lock, and the pause between them.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(20);

fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns true if a job holds the lock of a run folder.
pub(super) fn is_locked(folder: &Path) -> io::Result<bool> {
    match File::open(folder.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        file => Ok(!try_lock(&file?)?),
    }
}
