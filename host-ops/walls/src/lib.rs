//! Walls around a process that runs strangers' bytes: what it can no longer do when native code in it is taken over.
//!
//! - [`enter`]: Landlock, seccomp and limits, for the thread that calls it and all that it starts
//! - [`missing`]: which walls the kernel does not have, or whoever runs this process does not allow
//! - [`threads`]: tells a thread that was there before and is outside
//! - [`close_inherited`]: leaves a child process its three standard streams
//! - [`hide_process`]: keeps a process's memory, descriptors and environment from others of the same user
//!
//! The only user of `landlock` and `seccompiler`.

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod files;
mod process;

#[cfg(test)]
mod tests;

pub use process::{close_inherited, hide_process, threads};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// A wall that a kernel may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wall {
    /// Files, TCP, signals and abstract sockets.
    Landlock,
    /// System calls.
    Seccomp,
}

impl Wall {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Landlock, Self::Seccomp];
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Landlock => "Landlock",
            Self::Seccomp => "seccomp",
        })
    }
}

/// Files that a process behind its walls may open.
#[derive(Debug, Clone, Copy)]
pub enum Files<'a> {
    /// None.
    None,
    /// Those in this folder, to read them; it cannot list the folder.
    Read(&'a Path),
    /// Those in this folder, to read, make, write and remove them.
    Write(&'a Path),
}

/// A wall that is there and could not be entered.
#[derive(Debug, thiserror::Error)]
#[error("cannot enter {wall}: {reason}")]
pub struct WallError {
    wall: &'static str,
    reason: String,
}

impl WallError {
    pub(crate) fn new(wall: &'static str, reason: impl fmt::Display) -> Self {
        let reason = reason.to_string();
        Self { wall, reason }
    }
}

/// Confines the calling thread, and every thread and process that it starts from then on, for good. Call it before other threads are
/// started, and with all open that is needed from elsewhere.
///
/// Returns the walls that the kernel lacks; the others stand.
///
/// # Errors
/// [`WallError`], after which the process must not run a stranger's bytes.
pub fn enter(files: Files<'_>) -> Result<Vec<Wall>, WallError> {
    process::limit().map_err(|error| WallError::new("its limits", error))?;
    hide_process().map_err(|error| WallError::new("its limits", error))?;
    confine(files)
}

/// The walls that [`enter`] would find missing here. A thread tries them and ends.
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
