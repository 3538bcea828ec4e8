//! What a job keeps so that it can go on after anything: `docs/runs.md` says what a run's folder is, what a checkpoint holds and when a run is
//! not gone on with.
//!
//! * [`Folder`]: a run's folder while a job has it to itself; [`RunFolder`] is what a job is told of it.
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
pub(crate) use folder::{Folder, conclude};
pub(crate) use keeper::Keeper;
pub use list::{RunState, RunSummary, can_resume, runs, unfinished};
pub use run_folder::RunFolder;
pub(crate) use samples::SampleIndex;
pub(crate) use shelf::{Found, KeptEpoch, Weights};
pub(crate) use snapshot::{BestNote, EpochResult, Progress, Situation};
