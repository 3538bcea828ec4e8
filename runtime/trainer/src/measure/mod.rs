//! What a network takes: on the hosts, as they measure it, and on the trainer itself.

mod cache;
mod hosts;
mod samples;
mod trainer;

pub use cache::ProfileCache;
pub(crate) use hosts::{Reach, probe, profiles};
pub(crate) use samples::{mean_size, spread};
pub(crate) use trainer::{TrainerTask, trainer_profile};
