//! What whole-system tests, benchmarks and the demo stand on: a link of a given rate, and a `frostline serve` process that ends
//! with its owner. Standard library only, so that the development commands build in seconds.

mod host;
mod link;

pub use host::HostProcess;
pub use link::Link;
