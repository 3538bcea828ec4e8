//! Support for whole-system tests, benchmarks and the demo: a link with a given rate, a `frostline serve`
//! process that stops when dropped, and helpers that run commands. Dependencies are minimal because
//! development commands should build in seconds.

mod command;
mod faketime;
mod host;
mod link;
mod real_store;

pub use command::{Finished, finish, frostline_binary, repository};
pub use faketime::{FakeClock, libfaketime};
pub use host::HostProcess;
pub use link::Link;
pub use real_store::{OPERATIONS, RealStore, STORES};
