use crate::config::ConfigError;
use crate::tls::TlsError;
use crate::token::TokenError;
use frostline_engine::EngineError;
use frostline_objects::ObjectError;
use frostline_sandbox::SandboxError;
use frostline_state::StateError;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Reason a host did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A directory of the host is not usable.
    #[error("cannot use the host's directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A configured data folder is missing or not a folder.
    #[error("cannot use the data folder {}: {reason}; create it, or configure another", path.display())]
    Data {
        /// The folder.
        path: PathBuf,
        /// Reason the folder is not usable.
        reason: String,
    },
    /// The data folders could not be checked in time.
    #[error(
        "the data folders did not answer within {seconds} s; check that their file systems are mounted and respond"
    )]
    DataTimeout {
        /// The limit in seconds.
        seconds: u64,
    },
    /// The settings are invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The state store could not be opened.
    #[error("cannot open the host's state: {source}")]
    StateStore {
        /// The store's error.
        source: ObjectError,
    },
    /// The shared state could not be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The clock of this machine is wrong.
    #[error(
        "the clock of this machine differs by {} s from those of the state's store and of another host; synchronize it (NTP) and start \
         again", ahead.unsigned_abs()
    )]
    Clock {
        /// Seconds that the other clocks are ahead.
        ahead: i64,
    },
    /// A token file is not usable.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The TLS certificate or private key is not usable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The sandbox could not be initialized.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The inference engine could not be initialized.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The operating system did not start a thread.
    #[error("cannot start the decode threads: {source}")]
    Threads {
        /// The system's error.
        source: std::io::Error,
    },
    /// The memory budget is too small for this host.
    #[error(
        "memory_budget is {budget} bytes, but this host needs {needed}: {base} for the host process, and room for one lane, one image being decoded, one \
         object and one grant; raise memory_budget or the limit of its memory cgroup"
    )]
    Memory {
        /// The configured budget in bytes.
        budget: u64,
        /// The smallest sufficient budget in bytes.
        needed: u64,
        /// Bytes used by the host process before the first request.
        base: u64,
    },
    /// The admin socket could not be created.
    #[error("cannot open the admin socket {}: {source}", path.display())]
    AdminSocket {
        /// The socket's file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The host could not listen on an address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
}

impl StartError {
    /// Converts an error of the system for a directory of the host.
    pub(super) fn directory(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Directory { path, source }
    }
}
