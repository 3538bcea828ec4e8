//! A job from its first step, or from a checkpoint, to the files it writes.
//!
//! * [`train`]: the whole of it.
//! * [`training_loop`]: epochs and phases; [`start`] is what comes before them, [`finish`] what they came to.
//! * [`run`]: batches in, steps out, and the split reconsidered after each.

pub(crate) mod export;
mod finish;
mod results;
pub(crate) mod run;
mod start;
mod train;
mod training_loop;
pub(crate) mod unfreeze;

pub use train::train;
