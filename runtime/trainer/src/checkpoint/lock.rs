//! One job at a time has a run's folder.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

const LOCK: &str = "lock";

/// Has a run's folder to itself until it is dropped.
pub(crate) struct Kept {
    _lock: File,
}

/// Locks a run's folder; `None` where another job has it. Whoever looks at it has it for an instant.
pub(super) fn lock(folder: &Path) -> io::Result<Option<Kept>> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join(LOCK))?;
    for _ in 0..LOOKS {
        if has_locked(&file)? {
            return Ok(Some(Kept { _lock: file }));
        }
        std::thread::sleep(LOOK);
    }
    Ok(None)
}

/// How often a lock is tried for, and how long after another.
const LOOKS: usize = 5;
const LOOK: Duration = Duration::from_millis(20);

fn has_locked(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether a job has a run's folder.
pub(super) fn is_locked(folder: &Path) -> io::Result<bool> {
    match File::open(folder.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        file => Ok(!has_locked(&file?)?),
    }
}
