//! Replanning while a job runs: every step corrects the measurements, and the job changes to another split if
//! this saves enough of the remaining time or cost.

mod observed;
mod recent;
mod replanner;

pub use observed::Iteration;
pub use replanner::{Change, Replanner};
