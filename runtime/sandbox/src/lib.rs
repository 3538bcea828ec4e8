//! Runs guests in a sandbox. This is the only crate that uses wasmtime.
//!
//! [`Sandbox::prepare`] turns a tenant's bytes into a [`Guest`]: it checks that they are a component of the
//! world `frozen-prefix`, compiles them, and caches the result on disk under a keyed hash.
//! [`Guest::describe`] returns the guest's description, from which the host creates a [`Call`].
//! [`Guest::extract`] turns samples into activations, with one instance per call.
//!
//! Guests are isolated from the host and from each other:
//! - **Before execution**: the bytes are checked against the bounds of each [`GuestPart`] and the imports against the world. A
//!   child process with limits compiles them ([`Compiler::Child`]).
//! - **No ambient authority**: guests import only the interfaces in `guest/wit`. WASI is not available.
//!   Tensors are handles to host memory.
//! - **Time**: guest code runs on dedicated threads, is preempted at a fixed interval and ended at the
//!   deadline of the call. CPU time is counted and limited. The tenant with the least CPU time runs next.
//! - **Memory**: linear memory and tables have limits and come from a fixed pool. Host-side tensors are
//!   charged to the [`Allowance`] of the extraction, because no limit of the engine includes them.
//! - **Reads and logs**: the number of reads, handles and log lines is limited, as are the bytes read.
//! - **Answers**: the host validates the results of all calls.
//!
//! A failed operation returns an error to the guest; an exceeded limit ends the call. The host receives both
//! as a [`SandboxError`]. [`Allowance::usage`] returns the usage of an extraction. `docs/limits.md` lists all
//! limits.

mod allowance;
mod answer;
mod arguments;
mod artifacts;
mod bindings;
mod bounds;
mod breach;
mod call;
mod child;
mod compiler;
mod config;
mod description_builder;
mod descriptions;
mod engine;
mod error;
mod guest;
mod imports;
mod inspection;
mod joined;
mod memory;
mod meter;
mod nn;
mod runner;
mod sandbox;
mod stage_name;
mod state;
mod tally;
mod tensors;
mod text;
mod threads;
mod type_nesting;
mod unchecked;
mod upload;
mod usage;
mod world;

pub use allowance::Allowance;
pub use bounds::GuestPart;
pub use breach::Resource;
pub use call::{Call, CallContext, CutView, Extracted, Labels, ModelView, OnLogLine};
pub use compiler::ChildCompiler;
pub use config::{Compiler, Limits, SandboxConfig};
pub use error::{CompileCost, SandboxError};
pub use guest::Guest;
pub use memory::MemorySource;
pub use sandbox::Sandbox;
pub use unchecked::release_free_memory;
pub use upload::component;
pub use usage::{Spent, Usage};
pub use world::EXPORT;
