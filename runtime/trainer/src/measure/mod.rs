//! What a network takes: on the hosts, as they measure it, and on the trainer itself.

mod cache;
mod hosts;
mod samples;
mod study;
mod trainer;

pub use cache::ProfileCache;
pub(crate) use hosts::{Together, profiles, reach};
#[cfg(test)]
pub(crate) use samples::spread;
pub(crate) use samples::{read_objects, requested};
pub use study::{HostStudy, StudyJob, study};
pub(crate) use trainer::{TrainerProfile, TrainerTask, trainer_profile};
