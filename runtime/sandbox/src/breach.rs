//! Distinguishes two kinds of errors. A failed operation is returned to the guest, which may continue. An
//! exceeded limit, or a call that violates the interface, traps the guest and is reported to the host.

use frostline_tensor::OpError;
use wasmtime::component::ResourceTableError;

/// Limited resource of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum Resource {
    /// Bytes of an instance's linear memory.
    #[strum(serialize = "guest memory")]
    Memory,
    /// Entries of a table.
    #[strum(serialize = "table entry")]
    TableElements,
    /// Live host-side handles.
    #[strum(serialize = "handle")]
    Handles,
    /// Bytes of live host-side tensors.
    #[strum(serialize = "tensor memory")]
    TensorBytes,
    /// Objects read.
    #[strum(serialize = "object read")]
    ObjectReads,
    /// Bytes read from objects.
    #[strum(serialize = "object read size")]
    ObjectBytes,
    /// Bytes of the activations returned.
    #[strum(serialize = "output size")]
    OutputBytes,
    /// Bytes of log lines.
    #[strum(serialize = "log size")]
    LogBytes,
    /// Milliseconds of CPU time of guest code.
    #[strum(serialize = "CPU time")]
    CpuMillis,
    /// Milliseconds of CPU time of guest code between two calls to the host.
    #[strum(serialize = "CPU time between host calls")]
    SliceMillis,
}

impl Resource {
    /// Formats an amount for messages. Rounds a used amount up and a limit down, so that an exceeded limit
    /// and the usage never look equal.
    pub(crate) fn amount(self, value: u64, used: bool) -> String {
        match self {
            Self::Memory | Self::TensorBytes | Self::ObjectBytes | Self::OutputBytes | Self::LogBytes => {
                let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
                let Some((shift, unit)) = units.into_iter().find(|(shift, _)| value >> shift > 0) else {
                    return format!("{value} B");
                };
                let tenths = value as f64 * 10.0 / (1_u64 << shift) as f64;
                let tenths = if used { tenths.ceil() } else { tenths.floor() };
                format!("{} {unit}", tenths / 10.0)
            }
            Self::CpuMillis | Self::SliceMillis => format!("{} s", value as f64 / 1000.0),
            Self::TableElements | Self::Handles | Self::ObjectReads => value.to_string(),
        }
    }
}

/// Reason for which the host ends a guest call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Breach {
    /// The guest exceeded a limit.
    #[error("{resource} limit exceeded: {} of {}", resource.amount(*wanted, true), resource.amount(*allowed, false))]
    Limit {
        resource: Resource,
        /// Usage that the request would have led to.
        wanted: u64,
        allowed: u64,
    },
    /// The host is out of memory.
    #[error("{0}")]
    NoMemory(OpError),
}

/// Returns [`Breach::Limit`] if `wanted` exceeds `allowed`.
pub(crate) fn check_limit(resource: Resource, wanted: u64, allowed: u64) -> Result<(), Breach> {
    if wanted <= allowed {
        return Ok(());
    }
    Err(Breach::Limit {
        resource,
        wanted,
        allowed,
    })
}

/// Error of a host function.
#[allow(unreachable_pub, reason = "re-exported by the generated bindings")]
#[derive(Debug)]
pub enum ImportError {
    /// Returned to the guest, which may continue.
    Guest(OpError),
    /// Ends the guest's call.
    Trap(wasmtime::Error),
}

impl From<OpError> for ImportError {
    fn from(error: OpError) -> Self {
        Self::Guest(error)
    }
}

impl From<Breach> for ImportError {
    fn from(breach: Breach) -> Self {
        match breach {
            Breach::NoMemory(error) => Self::Guest(error),
            breach => Self::Trap(wasmtime::Error::new(breach)),
        }
    }
}

impl From<wasmtime::Error> for ImportError {
    fn from(error: wasmtime::Error) -> Self {
        Self::Trap(error)
    }
}

impl From<ResourceTableError> for ImportError {
    fn from(error: ResourceTableError) -> Self {
        Self::Trap(wasmtime::Error::new(error))
    }
}
