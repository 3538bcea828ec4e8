use crate::bounds::GuestPart;
use crate::breach::{Breach, ImportError, Resource};
use crate::text::one_line;
use frostline_batching::EnterError;
use frostline_tensor::{Cause, OpError, OpErrorCode};
use std::time::Duration;
use wasmtime::WasmBacktrace;
use wasmtime::component::ResourceTableError;

/// Maximum length of a trap message in bytes. Trap messages can contain text from the guest.
const MAX_TRAP_BYTES: usize = 1024;

/// Maximum number of functions in the message of a trap. Guests call their functions directly, so the functions
/// of interest are near the trap.
const MAX_FUNCTIONS: usize = 8;

/// Maximum length of the name of a function in bytes. Names with generic parameters can have kilobytes.
const MAX_FUNCTION_BYTES: usize = 120;

/// Names of functions with which Rust handles panics, which are of no interest to authors of guests.
const PANIC_HANDLERS: [&str; 5] = ["std::", "core::", "alloc::", "rust_", "__rust"];

/// Maximum length of a parser message in bytes.
const MAX_REASON_BYTES: usize = 256;

/// Error of a guest or a guest call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The bytes are not a WebAssembly guest.
    #[error("invalid guest: {reason}")]
    NotAGuest {
        /// Description of the bytes and advice.
        reason: String,
    },
    /// The guest exceeds the size limit.
    #[error("the guest has {bytes} bytes, the limit of this host is {allowed}")]
    GuestTooLarge {
        /// Size of the guest in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        allowed: usize,
    },
    /// The guest exceeds the bound of a part.
    #[error("the guest has {found} {part}, the limit of hosts is {allowed}: make the guest smaller")]
    TooComplex {
        /// Part over the limit.
        part: GuestPart,
        /// Count when inspection stopped.
        found: u64,
        /// Maximum count.
        allowed: u64,
    },
    /// The component has other imports or exports than the world `frozen-prefix`.
    #[error("the component does not implement the world frostline:pushdown/frozen-prefix@0.2.0: {}", other_world(.imports, .exports, .detail))]
    OtherWorld {
        /// Imports that are not available to guests.
        imports: Vec<String>,
        /// Missing exports.
        exports: Vec<String>,
        /// Further explanation, such as differences between types. May be empty.
        detail: String,
    },
    /// Compiling exceeded a limit.
    #[error(
        "compiling the guest needs more than {allowed} {cost}: make the guest smaller, or ask the operator to raise {} \
         in the host's configuration",
        cost.setting()
    )]
    TooCostly {
        /// The resource.
        cost: CompileCost,
        /// The limit.
        allowed: u64,
    },
    /// Compiling, including the time waiting for other compilations, exceeded the deadline.
    #[error("the guest was not compiled within {after:?}: try again, or make the guest smaller")]
    PrepareDeadline {
        /// Deadline.
        after: Duration,
    },
    /// No instance became available before the deadline.
    #[error(
        "no guest instance became available within {after:?}; other calls use all instances, try again later"
    )]
    Busy {
        /// Deadline.
        after: Duration,
    },
    /// The guest crashed.
    #[error("the guest trapped: {trap}{}{}", logged_suffix(.last_words), called_suffix(.functions))]
    Trapped {
        /// Trap message of the engine.
        trap: String,
        /// Functions of the guest on the stack, innermost first. Empty if the guest contains no names.
        functions: Vec<String>,
        /// Last line that the guest logged as an error. The SDK logs panic messages at this level.
        last_words: Option<String>,
    },
    /// The guest call exceeded the deadline.
    #[error("the guest timed out after {after:?}")]
    Deadline {
        /// Deadline.
        after: Duration,
    },
    /// The guest exceeded a limit.
    #[error(
        "{resource} limit exceeded: {} of {}; the operator can raise it",
        resource.amount(*wanted, true),
        resource.amount(*allowed, false)
    )]
    Limit {
        /// Limited resource.
        resource: Resource,
        /// Requested amount, including earlier usage.
        wanted: u64,
        /// Maximum amount.
        allowed: u64,
    },
    /// The guest returned an error.
    #[error("the guest returned an error: {0}")]
    Failed(OpError),
    /// A host operation failed due to the host. The result of the guest is discarded.
    #[error("a host operation failed during the guest's call: {error}; try again")]
    HostOperation {
        /// Error of the operation.
        error: OpError,
    },
    /// The answer violates the guest interface.
    #[error("invalid answer of the guest: {reason}")]
    BadAnswer {
        /// Description of the violation.
        #[source]
        reason: Cause,
    },
    /// The guest does not serve the requested split.
    #[error("guest {guest} does not serve the split {split:?}: {reason}")]
    NotServed {
        /// Name in the guest's description.
        guest: String,
        /// The requested split.
        split: String,
        /// Lists the served cuts or explains why the guest serves no cut.
        reason: String,
    },
    /// The host failed.
    #[error("internal sandbox error: {reason}")]
    Host {
        /// Description of the failure.
        #[source]
        reason: Cause,
    },
}

/// Limited resource of the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub enum CompileCost {
    /// Bytes of address space.
    #[strum(serialize = "bytes of memory")]
    MemoryBytes,
    /// Seconds of CPU time.
    #[strum(serialize = "seconds of CPU time")]
    CpuSeconds,
}

impl CompileCost {
    /// Setting of a host that limits the resource.
    pub fn setting(self) -> &'static str {
        match self {
            Self::MemoryBytes => "guests.compile_bytes",
            Self::CpuSeconds => "guests.compile_seconds",
        }
    }
}

impl SandboxError {
    /// Returns true if the call exceeded a limit on memory, whose use grows with the samples of a call, or if the
    /// guest returned `too-large`. The host chooses the number of samples by its speed, so a call with fewer
    /// samples can succeed.
    pub fn needs_fewer_samples(&self) -> bool {
        match self {
            Self::Limit { resource, .. } => matches!(
                resource,
                Resource::Memory | Resource::TableElements | Resource::Handles | Resource::TensorBytes
            ),
            Self::Failed(error) => error.code == OpErrorCode::TooLarge,
            _ => false,
        }
    }

    pub(crate) fn not_a_guest(reason: impl Into<String>) -> Self {
        Self::NotAGuest {
            reason: reason.into(),
        }
    }

    /// Returns this error, or `host_error` if a host operation failed before.
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

    /// Converts an error of a host operation in the result of a guest.
    pub(crate) fn from_import(error: ImportError) -> Self {
        match error {
            ImportError::Guest(error) if error.host_caused => Self::HostOperation { error },
            ImportError::Guest(error) => Self::bad_answer(error),
            ImportError::Trap(error) => Self::from_trap(&error, 0, None),
        }
    }

    /// Converts a trap to an exceeded limit or a crash. `handles` is the maximum number of handles.
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
        Self::Trapped {
            trap: one_line(&trap, MAX_TRAP_BYTES),
            functions: functions(error),
            last_words,
        }
    }
}

/// Returns the names of the guest's functions in the backtrace of a trap. Functions of the panic handler are skipped.
fn functions(error: &wasmtime::Error) -> Vec<String> {
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    let frames = backtrace.map_or(&[][..], WasmBacktrace::frames).iter();
    let names = frames.filter_map(|frame| frame.func_name());
    let names = names.map(|name| format!("{:#}", rustc_demangle::demangle(name)));
    let own = names
        .skip_while(|name| PANIC_HANDLERS.iter().any(|start| name.starts_with(start)))
        .take(MAX_FUNCTIONS);
    own.map(|name| one_line(&name, MAX_FUNCTION_BYTES)).collect()
}

impl From<wasmparser::Error> for SandboxError {
    fn from(error: wasmparser::Error) -> Self {
        Self::not_a_guest(one_line(&error.to_string(), MAX_REASON_BYTES))
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
            Breach::NoMemory(error) => Self::HostOperation { error },
        }
    }
}

impl From<EnterError> for SandboxError {
    fn from(refused: EnterError) -> Self {
        Self::host(Cause::with_message("waiting for a turn failed", refused))
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
            "it does not export {}; `frostline guest new` creates a project with these exports",
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

fn called_suffix(functions: &[String]) -> String {
    match functions {
        [] => String::new(),
        functions => format!("; in {}", functions.join(", called by ")),
    }
}

fn logged_suffix(words: &Option<String>) -> String {
    words
        .as_ref()
        .map(|words| format!("; it logged: {words}"))
        .unwrap_or_default()
}
