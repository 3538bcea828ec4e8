//! Lanes in child processes. Each lane has a separate process, which executes batches in sequence and is
//! replaced after a crash. A network that crashes ONNX Runtime therefore only ends the batch that ran it.

mod bell;
mod channel;
mod command;
mod entry;
mod guard;
mod lane;
mod memory;
mod message;
mod meter;
mod output;
mod prepare;
mod process;
mod progress;
mod serve;
#[cfg(test)]
mod tests;
pub(super) mod window;

pub use entry::{ConfinedLane, enter_lane};
pub(super) use guard::Guards;
pub(super) use lane::ChildLane;
#[cfg(test)]
pub(crate) use memory::usage;
