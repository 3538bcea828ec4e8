//! What a job keeps so that it can go on after anything: `docs/runs.md` says what a run's folder is, what a checkpoint holds and when a run is
//! not gone on with.
//!
//! * [`Folder`]: a run's folder while a job has it to itself; [`RunFolder`] is what a job is told of it.
//! * [`snapshot`]: all that one step hands to the next; [`file`] is how it lies on disk, [`shelf`] which of them are kept.
//! * [`Settings`], [`SampleIndex`]: what makes a job this one, to be held against the job that is to go on.

mod exact;
mod file;
mod folder;
mod keeper;
mod list;
mod record;
mod samples;
mod settings;
mod shelf;
mod snapshot;

pub use folder::RunFolder;
pub(crate) use folder::{Conclusion, Folder, conclude};
pub(crate) use keeper::Keeper;
pub use list::{RunState, RunSummary, can_resume, runs, unfinished};
pub(crate) use samples::SampleIndex;
pub(crate) use settings::Settings;
pub(crate) use shelf::{Found, Weights};
pub(crate) use snapshot::{BestNote, EpochResult, Progress, Situation};
