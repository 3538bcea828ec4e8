//! What a network takes: on a host, as the host measures it, and on the trainer itself.

mod cache;
mod host;
mod own;
mod samples;
mod together;

pub use cache::ProfileCache;
pub use host::{HostStudy, StudyJob, study};
pub use own::{TrainerProfile, TrainerTask, trainer_profile};
pub use samples::{fetch_objects, spread};
pub(crate) use samples::{read_objects, requested};
pub(crate) use together::{Together, reach, slowest};
