//! Sandbox of processes that parse untrusted bytes: limits the damage if native code in them is exploited.
//!
//! - [`enter`]: applies Landlock, seccomp and limits to the calling thread and everything that it starts
//! - [`missing`]: lists the walls that the kernel or the environment does not support
//! - [`threads`]: counts threads, to detect unconfined ones
//! - [`limit`]: sets a resource limit of the calling process
//! - [`close_inherited`]: limits a child process to the three standard streams
//! - [`die_first`]: sacrifices a child process instead of the host if memory runs out
//! - [`hide_process`]: protects memory, descriptors and environment from other processes of the same user
//! - [`StatusFile`]: measures the memory and threads of a process, also one behind walls
//! - [`one_line`]: makes text of a confined process safe for logs and messages
//!
//! Except for tests, this crate is the only user of `landlock` and `seccompiler`.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads"))]

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod files;
mod process;
mod status;
mod text;
mod wall;

#[cfg(test)]
mod tests;

pub use process::{close_inherited, die_first, hide_process, limit, threads};
pub use status::{ProcessUsage, StatusFile};
pub use text::one_line;
pub use wall::{Files, Wall, WallError};

/// Permanently confines the calling thread, and all threads and processes that it starts afterwards. Call
/// this function before other threads start, with all other required files open.
///
/// Returns the walls that the kernel or the environment does not support. The remaining walls are active.
///
/// # Errors
/// Returns [`WallError`] if a wall or a limit cannot be applied. The process must not parse untrusted bytes
/// afterwards.
pub fn enter(files: Files<'_>) -> Result<Vec<Wall>, WallError> {
    process::limit_all().map_err(|error| WallError::new("the process limits", error))?;
    hide_process().map_err(|error| WallError::new("the process limits", error))?;
    confine(files)
}

/// Returns the walls that [`enter`] would report as missing. Tests them on a temporary thread.
#[expect(clippy::disallowed_methods, reason = "tests the walls with a short thread")]
pub fn missing() -> Vec<Wall> {
    let tried = std::thread::spawn(|| confine(Files::None)).join();
    match tried {
        Ok(Ok(missing)) => missing,
        _ => Wall::ALL.to_vec(),
    }
}

#[cfg(target_os = "linux")]
fn confine(files: Files<'_>) -> Result<Vec<Wall>, WallError> {
    let stands = [
        (Wall::Landlock, files::confine(files)?),
        (Wall::Seccomp, calls::confine(files)?),
    ];
    let missing = stands.into_iter().filter(|(_, stands)| !stands);
    Ok(missing.map(|(wall, _)| wall).collect())
}

#[cfg(not(target_os = "linux"))]
fn confine(_: Files<'_>) -> Result<Vec<Wall>, WallError> {
    Ok(Wall::ALL.to_vec())
}
