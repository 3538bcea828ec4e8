//! Checkpoints and run folders: `docs/runs.md` describes the folder, the content of a checkpoint and when a resume is
//! refused.
//!
//! * [`LockedRun`]: a run's folder, locked by its job; [`RunFolder`] is the setting that names it.
//! * [`snapshot`]: all that one step hands to the next; [`file`] is how it lies on disk, [`shelf`] which of them are kept.
//! * [`config`], [`SampleIndex`]: what makes a job this one, to be held against the job that is to go on.

mod config;
mod exact;
mod file;
mod folder;
mod keeper;
mod list;
mod lock;
mod record;
mod run_folder;
mod samples;
mod shelf;
mod snapshot;

pub use config::recorded;
pub(crate) use folder::{LockedRun, write_ending};
pub(crate) use keeper::CheckpointWriter;
pub use list::{RunState, RunSummary, can_resume, runs, unfinished};
pub use run_folder::RunFolder;
pub(crate) use samples::SampleIndex;
pub(crate) use shelf::{FoundCheckpoint, SavedEpoch, Weights};
pub(crate) use snapshot::{BestNote, EpochResult, Progress, TrainingState};
