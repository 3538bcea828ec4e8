//! The seam between the two worlds of errors. An operation that fails is *told* to the guest, which may go on. A limit
//! that is passed, or a call that makes no sense, *ends* the guest's call and is told to the host.

use frostline_tensor::OpError;
use wasmtime::component::ResourceTableError;

/// What a guest may use only so much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Resource {
    /// Bytes of an instance's linear memory.
    #[strum(serialize = "bytes of guest memory")]
    Memory,
    /// Entries of a table.
    #[strum(serialize = "table entries")]
    TableElements,
    /// Host-side handles held at once.
    #[strum(serialize = "handles held at once")]
    Handles,
    /// Bytes of host-side tensors alive at once.
    #[strum(serialize = "bytes of tensors held on the host at once")]
    TensorBytes,
    /// Objects read.
    #[strum(serialize = "object reads")]
    ObjectReads,
    /// Bytes read from objects.
    #[strum(serialize = "bytes read from objects")]
    ObjectBytes,
    /// Bytes of the activations returned.
    #[strum(serialize = "bytes of activations")]
    OutputBytes,
    /// Bytes of log lines.
    #[strum(serialize = "bytes of log lines")]
    LogBytes,
    /// Milliseconds of CPU time of guest code.
    #[strum(serialize = "milliseconds of CPU time")]
    CpuMillis,
    /// Milliseconds of CPU time of guest code between two of its calls to the host.
    #[strum(serialize = "milliseconds of CPU time without asking the host for anything")]
    SliceMillis,
}

/// Why the host ends a guest's call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Breach {
    /// The guest wanted more than it may have.
    #[error("{wanted} {resource}, {allowed} are allowed")]
    Limit {
        /// Of what.
        resource: Resource,
        /// What it would have come to.
        wanted: u64,
        /// What is allowed.
        allowed: u64,
    },
    /// The guest called the host in a way the interface has no answer for.
    #[error("{0}")]
    Misuse(String),
    /// The host has no memory for what the guest wants.
    #[error("{0}")]
    Lacked(OpError),
}

/// Holds what a guest wants of something against what it may have.
pub(crate) fn within(resource: Resource, wanted: u64, allowed: u64) -> Result<(), Breach> {
    if wanted <= allowed {
        return Ok(());
    }
    Err(Breach::Limit {
        resource,
        wanted,
        allowed,
    })
}

/// How a host function that a guest called fails.
#[allow(unreachable_pub, reason = "the generated bindings re-export it")]
#[derive(Debug)]
pub enum ImportError {
    /// The guest is told and goes on.
    Told(OpError),
    /// The guest's call ends.
    Ended(wasmtime::Error),
}

impl From<OpError> for ImportError {
    fn from(error: OpError) -> Self {
        Self::Told(error)
    }
}

impl From<Breach> for ImportError {
    fn from(breach: Breach) -> Self {
        match breach {
            Breach::Lacked(error) => Self::Told(error),
            breach => Self::Ended(wasmtime::Error::new(breach)),
        }
    }
}

impl From<wasmtime::Error> for ImportError {
    fn from(error: wasmtime::Error) -> Self {
        Self::Ended(error)
    }
}

impl From<ResourceTableError> for ImportError {
    fn from(error: ResourceTableError) -> Self {
        Self::Ended(wasmtime::Error::new(error))
    }
}
