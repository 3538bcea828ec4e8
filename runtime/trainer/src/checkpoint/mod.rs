//! Checkpoints and run folders: `docs/runs.md` describes the folder, the content of a checkpoint and when a resume is
//! refused.
//!
//! * [`LockedRun`]: a run's folder, locked by its job; [`RunFolder`] is the setting that names it.
//! * [`snapshot`]: the state between two steps; [`file`] is its format, [`checkpoints`] their folder.
//! * [`config`], [`SampleIndex`]: what makes a job this one, compared with the job that resumes.

mod checkpoints;
mod config;
mod exact;
mod file;
mod folder;
mod list;
mod lock;
mod record;
mod run_folder;
mod samples;
mod snapshot;
mod writer;

pub(crate) use checkpoints::{FoundCheckpoint, SavedEpoch, Weights};
pub use config::recorded;
pub(crate) use folder::{LockedRun, write_ending};
pub use list::{RunState, RunSummary, can_resume, runs, unfinished};
pub use run_folder::RunFolder;
pub(crate) use samples::SampleIndex;
pub(crate) use snapshot::{BestNote, EpochResult, Progress, TrainingState};
pub(crate) use writer::CheckpointWriter;
