//! The sandbox guests run in; the only user of wasmtime.
//!
//! A tenant's bytes become a [`Guest`] in [`Sandbox::prepare`]: they are checked to be a component of the world
//! `frozen-prefix`, compiled, and kept on disk under a keyed hash. A guest describes itself once, a [`Job`] is made of that
//! description, and [`Guest::extract`] turns samples into activations, one instance per call.
//!
//! What isolates guests from the host and from each other:
//! - **Nothing ambient**: a guest imports the interfaces of `guest/wit` and no WASI. Tensors are handles to host memory.
//! - **Time**: guest code runs on threads of its own, is interrupted every few milliseconds so that others get their turn,
//!   and ends at its deadline, wherever it spins or waits.
//! - **Memory**: linear memory and tables are capped and come from a fixed pool; host-side tensors are charged to the
//!   extraction's [`Allowance`], because no engine limit sees them.
//! - **Reads and words**: objects and bytes read, handles held, log lines are all bounded.
//! - **Answers**: whatever a guest returns is checked before the host uses it.
//!
//! A failed operation is told to the guest, which may go on; a passed limit ends its call. Both reach the host as a
//! [`SandboxError`].

mod allowance;
mod answer;
mod artefact_load;
mod artefacts;
mod bindings;
mod breach;
mod config;
mod engine;
mod error;
mod guest;
mod imports;
mod job;
mod nn;
mod sandbox;
mod stage_name;
mod state;
mod threads;
mod upload;
mod world;

pub use allowance::{Allowance, Usage};
pub use breach::Resource;
pub use config::{Limits, SandboxConfig};
pub use error::SandboxError;
pub use guest::Guest;
pub use job::{CallContext, CutView, Extracted, Job, Labels, ModelView};
pub use sandbox::Sandbox;
pub use upload::component;
