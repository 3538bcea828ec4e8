//! Measures the cost of networks on hosts and trainer.

mod cache;
mod hosts;
mod samples;
mod trainer;

pub use cache::ProfileCache;
pub(crate) use hosts::{HostConditions, probe, profiles};
pub(crate) use samples::{mean_size, spread};
pub(crate) use trainer::{TrainerTask, trainer_profile};
