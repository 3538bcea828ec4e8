//! Checkpoints and run folders. `docs/runs.md` describes the folder, the contents of a checkpoint and the
//! conditions for a resume.
//!
//! - [`LockedRun`]: the run folder, locked by the job. [`RunFolder`] is the setting with the path.
//! - [`snapshot`]: training state between two steps. [`mod@file`] defines the format, [`checkpoints`] manages the
//!   files.
//! - [`config`], [`SampleIndex`]: recorded settings and samples, compared when a job resumes.

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

pub(crate) use checkpoints::{FoundCheckpoint, LoadedEpoch, SavedEpoch, Weights};
pub use config::recorded_job;
pub(crate) use folder::{LockedRun, write_ending};
pub use list::{RunState, RunSummary, can_resume, runs, unfinished};
pub use run_folder::RunFolder;
pub(crate) use samples::{Rearrangement, SampleIndex};
pub(crate) use snapshot::{BestNote, EpochResult, Progress, TrainingState};
pub(crate) use writer::CheckpointWriter;
