//! The sandbox guests run in; the only user of wasmtime.
//!
//! [`Sandbox::prepare`] turns a tenant's bytes into a [`Guest`]: they are checked to be a component of the world
//! `frozen-prefix`, compiled, and cached on disk under a keyed hash. A guest describes itself once, a [`Call`] is made of that
//! description, and [`Guest::extract`] turns samples into activations, one instance per call.
//!
//! What isolates guests from the host and from each other:
//! - **Before execution**: a guest's bytes are checked against [`GuestBounds`] and its imports against the world; it is
//!   compiled in a child process with limits ([`Compiler::Child`]).
//! - **Nothing ambient**: a guest imports the interfaces of `guest/wit` and no WASI. Tensors are handles to host memory.
//! - **Time**: guest code runs on threads of its own, is preempted every few milliseconds,
//!   and is ended at its deadline. Its CPU time is counted and limited; the ready tenant that used the least runs next.
//! - **Memory**: linear memory and tables are capped and come from a fixed pool; host-side tensors are charged to the
//!   extraction's [`Allowance`], because no engine limit sees them.
//! - **Reads and logs**: objects and bytes read, handles and log lines are bounded.
//! - **Answers**: whatever a guest returns is checked before the host uses it.
//!
//! A failed operation returns an error to the guest; an exceeded limit ends its call. Both reach the host as a
//! [`SandboxError`]. [`Allowance::usage`] reports what an extraction used. `docs/limits.md` lists every limit.

mod allowance;
mod answer;
mod arguments;
mod artifact_load;
mod artifacts;
mod bindings;
mod bounds;
mod breach;
mod call;
mod child;
mod compiler;
mod config;
mod engine;
mod error;
mod guest;
mod imports;
mod inspection;
mod memory;
mod meter;
mod nn;
mod runner;
mod sandbox;
mod stage_name;
mod state;
mod tally;
mod text;
mod threads;
mod type_nesting;
mod upload;
mod usage;
mod world;

pub use allowance::Allowance;
pub use bounds::{GuestBounds, GuestPart};
pub use breach::Resource;
pub use call::{Call, CallContext, CutView, Extracted, Labels, ModelView, OnLogLine};
pub use compiler::ChildCompiler;
pub use config::{Compiler, Limits, SandboxConfig};
pub use error::{CompileCost, SandboxError};
pub use guest::Guest;
pub use memory::MemorySource;
pub use sandbox::Sandbox;
pub use upload::component;
pub use usage::{Spent, Usage};
