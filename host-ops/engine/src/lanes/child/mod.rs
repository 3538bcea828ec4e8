//! Lanes in child processes. Each lane keeps a process of its own, gives it one run at a time, and starts another when it
//! dies: so a network that crashes ONNX Runtime ends nothing but the run it was in.

mod bell;
mod channel;
mod command;
mod entry;
mod lane;
mod memory;
mod message;
mod meter;
pub(super) mod prepare;
mod process;
mod progress;
mod serve;
#[cfg(test)]
mod tests;
pub(super) mod window;

pub use entry::{ConfinedLane, enter_lane};
pub(super) use lane::ChildLane;
#[cfg(test)]
pub(crate) use memory::usage;
