//! The sandbox guests run in; the only user of wasmtime.
//!
//! A tenant's bytes become a [`Guest`] in [`Sandbox::prepare`]: they are checked to be a component of the world
//! `frozen-prefix`, compiled, and kept on disk under a keyed hash. A guest describes itself once, a [`Call`] is made of that
//! description, and [`Guest::extract`] turns samples into activations, one instance per call.
//!
//! What isolates guests from the host and from each other:
//! - **Before anything runs**: a guest's bytes are measured against [`GuestBounds`] and its imports against the world; it is
//!   compiled in a child process with limits ([`Compiler::Child`]).
//! - **Nothing ambient**: a guest imports the interfaces of `guest/wit` and no WASI. Tensors are handles to host memory.
//! - **Time**: guest code runs on threads of its own, is interrupted every few milliseconds so that others get their turn,
//!   and ends at its deadline, wherever it spins or waits. Its CPU time is counted and limited, and of all tenants with
//!   something to run the one that has used the least comes next.
//! - **Memory**: linear memory and tables are capped and come from a fixed pool; host-side tensors are charged to the
//!   extraction's [`Allowance`], because no engine limit sees them.
//! - **Reads and words**: objects and bytes read, handles held, log lines are all bounded.
//! - **Answers**: whatever a guest returns is checked before the host uses it.
//!
//! A failed operation is told to the guest, which may go on; a passed limit ends its call. Both reach the host as a
//! [`SandboxError`]; [`Allowance::usage`] says what an extraction has used. `docs/limits.md` lists every limit.

mod allowance;
mod answer;
mod artefact_load;
mod artefacts;
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
mod lender;
mod meter;
mod nn;
mod question;
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
pub use call::{Call, CallContext, CutView, Extracted, Labels, ModelView, OnLine};
pub use compiler::ChildCompiler;
pub use config::{Compiler, Limits, SandboxConfig};
pub use error::{CompileCost, SandboxError};
pub use guest::Guest;
pub use lender::Lender;
pub use sandbox::Sandbox;
pub use upload::component;
pub use usage::Usage;
