use crate::bounds::GuestPart;
use crate::breach::{Breach, Resource};
use crate::text::one_line;
use frostline_batching::EnterError;
use frostline_tensor::{Cause, OpError};
use std::time::Duration;
use wasmtime::component::ResourceTableError;

/// The longest text of a trap, in bytes: it may repeat what the guest said.
const TRAP: usize = 1024;

/// The longest text of the parser's that is passed on, in bytes.
const REASON: usize = 256;

/// Why a guest cannot be used, or a call of one failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The bytes are not a WebAssembly guest.
    #[error("invalid guest: {reason}")]
    NotAGuest {
        /// What the bytes are, and what to do.
        reason: String,
    },
    /// The guest exceeds the size limit.
    #[error("the guest has {bytes} bytes, the limit of this host is {allowed}")]
    GuestTooLarge {
        /// Its size.
        bytes: usize,
        /// The largest that is accepted.
        allowed: usize,
    },
    /// The guest exceeds a [`GuestBounds`](crate::GuestBounds) limit.
    #[error(
        "the guest has {found} {part}, the limit of this host is {allowed}: make the guest smaller, or ask the operator to raise \
         the limit"
    )]
    TooComplex {
        /// The part that exceeds its limit.
        part: GuestPart,
        /// How much was counted before inspection stopped.
        found: u64,
        /// The limit.
        allowed: u64,
    },
    /// A component with other imports or exports than the world `frozen-prefix`.
    #[error("the component does not implement the world frostline:pushdown/frozen-prefix@0.1.2: {}", other_world(.imports, .exports, .detail))]
    OtherWorld {
        /// Imports that are not available to guests.
        imports: Vec<String>,
        /// Missing exports.
        exports: Vec<String>,
        /// How the types differ, where only they do.
        detail: String,
    },
    /// Compiling exceeded a limit.
    #[error(
        "compiling the guest takes more than {allowed} {cost}: make the guest smaller, or ask the operator to raise the limit"
    )]
    TooCostly {
        /// The resource.
        cost: CompileCost,
        /// The limit.
        allowed: u64,
    },
    /// Compiling, with waiting for other compilations, took too long.
    #[error("the guest was not compiled within {after:?}: try again, or make the guest smaller")]
    PrepareDeadline {
        /// The time given.
        after: Duration,
    },
    /// No instance became available in time.
    #[error("no guest instance became available within {after:?}: other calls use them all, try again later")]
    Busy {
        /// The time waited.
        after: Duration,
    },
    /// The guest crashed.
    #[error("the guest trapped: {trap}{}", logged_suffix(.last_words))]
    Trapped {
        /// What the engine says.
        trap: String,
        /// The last line the guest logged as an error; the SDK logs a panic's message there.
        last_words: Option<String>,
    },
    /// The guest's call took too long.
    #[error("the guest did not answer within {after:?}")]
    Deadline {
        /// The time given.
        after: Duration,
    },
    /// The guest exceeded a limit.
    #[error(
        "{resource} limit exceeded: {} of {}; the operator can raise it",
        resource.amount(*wanted, true),
        resource.amount(*allowed, false)
    )]
    Limit {
        /// The resource.
        resource: Resource,
        /// The amount it would have used.
        wanted: u64,
        /// The limit.
        allowed: u64,
    },
    /// The guest returned an error.
    #[error("the guest returned an error: {0}")]
    Failed(OpError),
    /// A host operation failed by the host's own fault, so the guest's own result does not count.
    #[error("a host operation failed during the guest's call: {error}; try again")]
    HostOperation {
        /// What failed.
        error: OpError,
    },
    /// The guest's answer violates its interface.
    #[error("invalid answer of the guest: {reason}")]
    BadAnswer {
        /// What is wrong with it.
        #[source]
        reason: Cause,
    },
    /// The guest does not serve the requested split.
    #[error("guest {guest} does not serve the split {split:?}: {reason}")]
    NotServed {
        /// The guest's name for itself.
        guest: String,
        /// The requested split.
        split: String,
        /// What it does serve, or why not.
        reason: String,
    },
    /// The host failed, not the guest.
    #[error("the sandbox failed: {reason}")]
    Host {
        /// What happened.
        #[source]
        reason: Cause,
    },
}

/// A limited resource of the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompileCost {
    /// Bytes of memory.
    MemoryBytes,
    /// Seconds of CPU time.
    CpuSeconds,
}

impl std::fmt::Display for CompileCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::MemoryBytes => "bytes of memory",
            Self::CpuSeconds => "seconds of CPU time",
        })
    }
}

impl SandboxError {
    pub(crate) fn not_a_guest(reason: impl Into<String>) -> Self {
        Self::NotAGuest {
            reason: reason.into(),
        }
    }

    /// This error, or the host's where a host operation failed before.
    pub(crate) fn or_host_error(self, host_error: Option<OpError>) -> Self {
        host_error.map_or(self, |error| Self::HostOperation { error })
    }

    pub(crate) fn bad_answer(reason: impl Into<Cause>) -> Self {
        Self::BadAnswer {
            reason: reason.into(),
        }
    }

    pub(crate) fn host(reason: impl Into<Cause>) -> Self {
        Self::Host {
            reason: reason.into(),
        }
    }

    /// Classifies a trap: an exceeded limit, or a crash of the guest.
    pub(crate) fn from_trap(error: &wasmtime::Error, handles: usize, last_words: Option<String>) -> Self {
        if let Some(limit @ Breach::Limit { .. }) = error.downcast_ref::<Breach>() {
            return limit.clone().into();
        }
        if let Some(ResourceTableError::Full) = error.downcast_ref::<ResourceTableError>() {
            let allowed = handles as u64;
            return Self::Limit {
                resource: Resource::Handles,
                wanted: allowed.saturating_add(1),
                allowed,
            };
        }
        let trap = match error.downcast_ref::<wasmtime::Trap>() {
            Some(trap) => trap.to_string(),
            None => error.root_cause().to_string(),
        };
        let trap = one_line(&trap, TRAP);
        Self::Trapped { trap, last_words }
    }
}

impl From<wasmparser::Error> for SandboxError {
    fn from(error: wasmparser::Error) -> Self {
        Self::not_a_guest(one_line(&error.to_string(), REASON))
    }
}

impl From<Breach> for SandboxError {
    fn from(breach: Breach) -> Self {
        match breach {
            Breach::Limit {
                resource,
                wanted,
                allowed,
            } => Self::Limit {
                resource,
                wanted,
                allowed,
            },
            Breach::Misuse(reason) => Self::bad_answer(reason),
            Breach::NoMemory(error) => Self::HostOperation { error },
        }
    }
}

impl From<EnterError> for SandboxError {
    fn from(refused: EnterError) -> Self {
        Self::host(Cause::explained("waiting for a turn failed", refused))
    }
}

fn other_world(imports: &[String], exports: &[String], detail: &str) -> String {
    let mut parts = Vec::new();
    if !imports.is_empty() {
        parts.push(format!(
            "it imports {}, which is not available to guests",
            imports.join(", ")
        ));
    }
    if imports
        .iter()
        .any(|name| (name.starts_with("wasi:") && !name.starts_with("wasi:nn/")) || name.starts_with("wasi_"))
    {
        parts.push("WASI is not available to guests: build for wasm32-unknown-unknown".to_owned());
    }
    if !exports.is_empty() {
        parts.push(format!(
            "it does not export {}; `frostline guest new` creates a project that does",
            exports.join(", ")
        ));
    } else {
        parts.push("`frostline guest new` creates a project of this world".to_owned());
    }
    if !detail.is_empty() {
        parts.push(detail.to_owned());
    }
    parts.join("; ")
}

fn logged_suffix(words: &Option<String>) -> String {
    words
        .as_ref()
        .map(|words| format!("; it logged: {words}"))
        .unwrap_or_default()
}
