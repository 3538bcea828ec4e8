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
    /// The bytes are no WebAssembly guest at all.
    #[error("this is no guest: {reason}")]
    NotAGuest {
        /// What they are instead, and what to do.
        reason: String,
    },
    /// The guest is larger than this host takes.
    #[error("the guest has {bytes} bytes, this host takes at most {allowed}")]
    GuestTooLarge {
        /// Its size.
        bytes: usize,
        /// The largest that is accepted.
        allowed: usize,
    },
    /// The guest has more of something than this host takes.
    #[error(
        "the guest has {found} {part}, this host takes at most {allowed}: make it smaller, or ask whoever runs the host \
         to raise the bound"
    )]
    TooComplex {
        /// What there is too much of.
        part: GuestPart,
        /// How much was found before the rest was left unread.
        found: u64,
        /// The most that is accepted.
        allowed: u64,
    },
    /// A component that wants or gives something else than the world `frozen-prefix`.
    #[error("the component is of another world than frostline:pushdown/frozen-prefix@0.1.1: {}", other_world(.imports, .exports, .detail))]
    OtherWorld {
        /// What it imports that a guest does not get.
        imports: Vec<String>,
        /// What a guest exports and it does not.
        exports: Vec<String>,
        /// How the types differ, where only they do.
        detail: String,
    },
    /// Compiling took more than it may.
    #[error(
        "compiling the guest takes more than {allowed} {cost}: make it smaller, or ask whoever runs the host to raise the \
         limit"
    )]
    TooCostly {
        /// Of what.
        cost: CompileCost,
        /// What is allowed.
        allowed: u64,
    },
    /// Compiling took too long, or others were compiled for too long before.
    #[error("the guest was not ready to run after {after:?}: try again, or make it smaller")]
    PrepareDeadline {
        /// The time given.
        after: Duration,
    },
    /// No place for another call became free.
    #[error(
        "no place to run the guest became free within {after:?}: all are taken by other calls, try again later"
    )]
    Busy {
        /// The time waited.
        after: Duration,
    },
    /// The guest crashed.
    #[error("the guest trapped: {trap}{}", after_words(.last_words))]
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
    /// The guest wanted more of something than it may have.
    #[error(
        "the guest went over a limit: {wanted} {resource}, {allowed} are allowed; whoever runs the host can raise it"
    )]
    Limit {
        /// Of what.
        resource: Resource,
        /// What it would have come to.
        wanted: u64,
        /// What is allowed.
        allowed: u64,
    },
    /// The guest itself says it cannot.
    #[error("the guest answers: {0}")]
    Failed(OpError),
    /// The host could not do what the guest asked of it, for reasons of its own; what the guest made of that does not count.
    #[error("the host could not do what the guest asked for: {error}; try again")]
    HostLacked {
        /// What failed.
        error: OpError,
    },
    /// The guest answered something its interface does not allow.
    #[error("the guest's answer is wrong: {reason}")]
    BadAnswer {
        /// What is wrong with it.
        #[source]
        reason: Cause,
    },
    /// The guest does not serve the split asked for.
    #[error("guest {guest} does not serve the split {split:?}: {reason}")]
    NotServed {
        /// The guest's name for itself.
        guest: String,
        /// The split asked for.
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

/// Of what compiling a guest took too much.
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

    /// What a call ended with, unless the host had `lacked` something before.
    pub(crate) fn unless(self, lacked: Option<OpError>) -> Self {
        lacked.map_or(self, |error| Self::HostLacked { error })
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

    /// What ended a call, told apart: a limit, or a crash of the guest's own.
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
            Breach::Lacked(error) => Self::HostLacked { error },
        }
    }
}

impl From<EnterError> for SandboxError {
    fn from(refused: EnterError) -> Self {
        Self::host(Cause::explained("a tenant lost its turn", refused))
    }
}

fn other_world(imports: &[String], exports: &[String], detail: &str) -> String {
    let mut parts = Vec::new();
    if !imports.is_empty() {
        parts.push(format!(
            "it imports {}, which guests do not get",
            imports.join(", ")
        ));
    }
    if imports
        .iter()
        .any(|name| (name.starts_with("wasi:") && !name.starts_with("wasi:nn/")) || name.starts_with("wasi_"))
    {
        parts.push("guests run without WASI: build for wasm32-unknown-unknown".to_owned());
    }
    if !exports.is_empty() {
        parts.push(format!(
            "it does not export {}, as a project of `frostline guest new` does",
            exports.join(", ")
        ));
    } else {
        parts.push("`frostline guest new` makes a project of this world".to_owned());
    }
    if !detail.is_empty() {
        parts.push(detail.to_owned());
    }
    parts.join("; ")
}

fn after_words(words: &Option<String>) -> String {
    words
        .as_ref()
        .map(|words| format!("; it logged: {words}"))
        .unwrap_or_default()
}
