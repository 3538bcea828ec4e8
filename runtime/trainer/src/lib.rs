//! The compute side: lists the data, decides where to divide the network, fetches batches ahead while one trains, and
//! writes the tuned model.
//!
//! * [`train`]: a [`Job`] to a tuned model and an [`Outcome`]; what happens on the way is told as [`Event`]s.
//! * [`evaluate`]: an [`EvaluationJob`] to an accuracy.
//! * [`study`]: what a network takes on a host; [`trainer_profile`]: what it takes here.
//! * [`HostClient`]: one host, as a tenant uses it.
//! * [`Dataset`], [`fewest_bytes`]: how a listing becomes a task, and where `auto` divides a network.
//!
//! Every step's loss is the same wherever the network is divided. `docs/pipeline.md` says how batches flow.

mod choice;
mod client;
mod compute;
mod dataset;
mod error;
mod evaluate;
mod event;
mod export;
mod guest;
mod job;
mod notes;
mod pipeline;
mod plan;
mod profile;
mod retry;
mod setup;
mod shuffle;
#[cfg(test)]
mod tests;
mod train;

pub use client::{ByteMeter, ClientError, Deadlines, ExtractionStream, HostClient, Token, Uploaded};
pub use dataset::{Dataset, DatasetError, Sample};
pub use error::TrainerError;
pub use evaluate::evaluate;
pub use event::{Evaluation, Event, Events, Outcome, UploadKind};
pub use guest::Guest;
pub use job::{EvaluationJob, Job, OnBadSample, SplitChoice};
pub use notes::{CLASSES_KEY, PIXELS_KEY};
pub use plan::{Candidate, Plan, fewest_bytes};
pub use profile::{
    HostStudy, ProfileCache, StudyJob, TrainerProfile, TrainerTask, fetch_objects, spread, study,
    trainer_profile,
};
pub use train::train;
