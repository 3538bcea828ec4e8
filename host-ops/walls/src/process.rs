//! What a process may take and show, whatever the kernel.

use rustix::process::{Resource, Rlimit, setrlimit};
use std::io;

/// Open files: the standard streams, a network with its weights, what is held open of `/proc`, and some to spare.
const OPEN_FILES: u64 = 64;

/// No core dump, no locked memory, few open files.
pub(crate) fn limit() -> io::Result<()> {
    let limits = [
        (Resource::Core, 0),
        (Resource::Memlock, 0),
        (Resource::Nofile, OPEN_FILES),
    ];
    for (resource, most) in limits {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit)?;
    }
    Ok(())
}

/// Keeps memory, descriptors and environment of this process from other processes of the same user, and from core dumps. A program that
/// it becomes by `exec` shows them again.
///
/// # Errors
/// The system's.
pub fn hide_process() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Threads of this process; `None` where there is no `/proc`.
pub fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

/// Closes what a child process inherited beside its standard streams. Only at its start: whoever opened a descriptor since loses it.
///
/// # Errors
/// Where `/proc` is there and cannot be read.
pub fn close_inherited() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    for descriptor in inherited()? {
        // The one that listed the others is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn inherited() -> io::Result<Vec<i32>> {
    /// Where nobody tells which are open; few processes have more.
    const MOST: i32 = 1024;
    let entries = match std::fs::read_dir("/proc/self/fd") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((3..MOST).collect()),
        entries => entries?,
    };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|number| *number > 2).collect())
}
