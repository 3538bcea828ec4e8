use crate::state::StateError;
use crate::tls::TlsError;
use crate::token::TokenError;
use frostline_engine::EngineError;
use frostline_objects::ObjectError;
use frostline_sandbox::SandboxError;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a host did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A directory of the host cannot be used.
    #[error("cannot use the host's directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A folder with data is not there.
    #[error("cannot use the data folder {}: {reason}; create it, or set another with --data", path.display())]
    Data {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The state's store cannot be opened.
    #[error("cannot open the host's state: {source}")]
    StateStore {
        /// The store's error.
        source: ObjectError,
    },
    /// What lies in it cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// A token file cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The sandbox cannot run.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The engine cannot run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The system gave no threads.
    #[error("cannot start the decode threads: {source}")]
    Threads {
        /// The system's error.
        source: std::io::Error,
    },
    /// The budget has no room for what a host needs.
    #[error(
        "memory_budget is {budget} bytes, but this host needs {needed}: {base} for itself, and room for one lane, one image being decoded, one \
         object and one grant; raise memory_budget or the limit of its memory cgroup"
    )]
    Memory {
        /// Bytes.
        budget: u64,
        /// Bytes that would do.
        needed: u64,
        /// Bytes that the host holds before the first request.
        base: u64,
    },
    /// The admin's socket cannot be made.
    #[error("cannot open the admin socket {}: {source}", path.display())]
    AdminSocket {
        /// The socket's file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
}
