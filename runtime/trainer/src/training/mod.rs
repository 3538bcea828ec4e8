//! Trains a job, from the first step or a checkpoint to the files it writes.
//!
//! * [`train()`]: entry point.
//! * [`start`]: preparation. [`training_loop`]: epochs and phases. [`finish`]: result.
//! * [`run`]: batches, steps, and changes of the split.

pub(crate) mod context;
pub(crate) mod export;
mod finish;
mod results;
pub(crate) mod run;
mod start;
mod train;
mod training_loop;
pub(crate) mod unfreeze;

pub use run::fetcher;
pub use train::train;
