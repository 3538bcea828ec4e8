use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// Kernel mechanism that confines a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wall {
    /// Files, TCP, signals and abstract sockets.
    Landlock,
    /// System calls.
    Seccomp,
}

impl Wall {
    /// All walls.
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

/// Files accessible to a confined process.
#[derive(Debug, Clone, Copy)]
pub enum Files<'a> {
    /// No files.
    None,
    /// Files in this folder, for reading; the folder cannot be listed.
    Read(&'a Path),
    /// Files in this folder, for reading, creating, writing and removing.
    Write(&'a Path),
}

/// Failure to apply a supported wall.
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
