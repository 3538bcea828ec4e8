//! The compute side: lists the data, decides where to divide the network, fetches batches ahead while one trains, and
//! writes the tuned model.
//!
//! * [`train`]: a [`Job`] to a tuned model and an [`Outcome`]; what happens on the way is told as [`Event`]s.
//! * [`evaluate`]: an [`EvaluationJob`] to an accuracy.
//! * [`study`]: what a network takes on a host; [`trainer_profile`]: what it takes here.
//! * [`HostClient`]: one host, as a tenant uses it; [`Hosts`]: several that serve the same data.
//! * [`Plan`], [`Policy`], [`Simulation`]: where a network is divided, and why.
//! * [`Rehearsal`]: training steps at given splits, to see what each takes.
//! * [`Dataset`]: how a listing becomes a task.
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
mod folders;
mod guest;
mod job;
mod listing;
mod notes;
mod pipeline;
mod plan;
mod planner;
mod planning;
mod profile;
mod rehearsal;
mod retry;
mod run;
mod samples;
mod setup;
mod shards;
mod shuffle;
mod sources;
#[cfg(test)]
mod tests;
mod train;
mod uploading;

pub use choice::Possible;
pub use client::{
    ByteMeter, ClientError, Deadlines, ExtractionStream, HostClient, Hosts, Link, Token, Trust, Uploaded,
};
pub use dataset::{Dataset, DatasetError, LeftOut, Taken};
pub use error::TrainerError;
pub use evaluate::evaluate;
pub use event::{
    Evaluation, Event, Events, HostState, Measuring, Outcome, ProfileState, Received, UploadKind,
};
pub use guest::Guest;
pub use job::{EvaluationJob, Job, OnBadSample};
pub use listing::{Listed, Listing};
pub use notes::{CLASSES_KEY, PIXELS_KEY};
pub use pipeline::Flow;
pub use plan::{
    Bottleneck, Candidate, Explanation, LinkPoint, ParsePolicyError, Plan, Policy, Prediction, Ranked, Rival,
    Simulation, SimulationError, Stages, Summary, SummaryRow, Workload,
};
pub use planning::{Planned, plan};
pub use profile::{
    HostStudy, ProfileCache, StudyJob, TrainerProfile, TrainerTask, fetch_objects, spread, study,
    trainer_profile,
};
pub use rehearsal::{Leg, Rehearsal};
pub use samples::{Sample, Samples};
pub use train::train;
