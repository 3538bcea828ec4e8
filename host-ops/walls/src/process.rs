//! Process limits that do not depend on the kernel's walls.

use rustix::process::{Resource, Rlimit, setrlimit};
use std::io;

/// Maximum number of open files. Sufficient for the standard streams, a network and weights, open files of
/// `/proc`, and a reserve.
const OPEN_FILES: u64 = 64;

/// Added to the out-of-memory score of a confined process, which is in thousandths of the machine's memory. A host with
/// half of the memory then still outlives its lanes.
const OOM_SCORE: i32 = 500;

/// Disables core dumps and locked memory, and limits open files.
pub(crate) fn limit_all() -> io::Result<()> {
    limit(Resource::Core, 0)?;
    limit(Resource::Memlock, 0)?;
    limit(Resource::Nofile, OPEN_FILES)
}

/// Sets both the soft and the hard limit of this process to `most`.
///
/// # Errors
/// Returns the operating system's error.
pub fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    Ok(setrlimit(resource, limit)?)
}

/// Protects the memory, descriptors and environment of this process from other processes of the same user and
/// from core dumps. The protection ends when the process calls `exec`.
///
/// # Errors
/// Returns the operating system's error.
pub fn hide_process() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Makes the kernel prefer this process over the process that started it if memory runs out. Call this function
/// before [`hide_process`], which makes the setting read-only.
///
/// # Errors
/// Returns an error if `/proc` exists but the setting cannot be changed.
pub fn die_first() -> io::Result<()> {
    const FILE: &str = "/proc/self/oom_score_adj";
    let inherited = match std::fs::read_to_string(FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        inherited => inherited?,
    };
    let inherited: i32 = inherited.trim().parse().map_err(io::Error::other)?;
    std::fs::write(FILE, (inherited + OOM_SCORE).min(1000).to_string())
}

/// Returns the number of threads of this process, or `None` without `/proc`.
pub fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

/// Closes all descriptors of a child process except the standard streams. Call this function at the start: it
/// also closes descriptors that were opened in the meantime.
///
/// # Errors
/// Returns an error if `/proc` exists but cannot be read.
pub fn close_inherited() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    for descriptor in inherited()? {
        // The descriptor that listed the others is already closed.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn inherited() -> io::Result<Vec<i32>> {
    /// Number of descriptors to close without `/proc`; few processes have more.
    const MOST: i32 = 1024;
    let entries = match std::fs::read_dir("/proc/self/fd") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((3..MOST).collect()),
        entries => entries?,
    };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|number| *number > 2).collect())
}
