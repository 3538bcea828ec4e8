//! What whole-system tests, benchmarks and the demo stand on: a link of a given rate, a `frostline serve` process that ends
//! with its owner, and commands run to their end. Standard library only, so that the development commands build in seconds.

mod command;
mod host;
mod link;
mod real_store;

pub use command::{Finished, finish, frostline_binary, repository};
pub use host::HostProcess;
pub use link::Link;
pub use real_store::{OPERATIONS, RealStore, STORES};
