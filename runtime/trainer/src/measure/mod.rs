//! Measures the cost of networks on hosts and trainer.

mod hosts;
mod samples;
mod trainer;

pub(crate) use hosts::{HostConditions, probe, profiles};
pub(crate) use samples::{mean_size, read, spread};
pub(crate) use trainer::{TrainerTask, trainer_profile};
