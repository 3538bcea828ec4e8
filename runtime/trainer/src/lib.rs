//! The compute side: chooses where to divide the network, prefetches batches, trains, and writes the tuned
//! model.
//!
//! * [`train`]: executes a [`Job`], emits [`Event`]s and returns a [`JobResult`].
//! * [`RunFolder`], [`runs`]: folders to resume jobs from. See `docs/runs.md`.
//! * [`evaluate`]: measures the [`Quality`] of a model, with [`Tables`] for classes or labels.
//! * [`Predictor`]: predicts images and other files on this machine.
//! * [`quantize`]: converts layers of a network to int8.
//! * [`study()`]: profiles a network on a host.
//! * [`plan()`]: chooses a split and explains the choice.
//! * [`rehearsal`]: training steps at given splits, for benchmarks.
//! * [`whole_file`]: atomic file writes.
//!
//! Communication with hosts is in `frostline-client`, the decisions about the split are in
//! `frostline-plan`, and the layers that this machine computes are in `frostline-compute`. Losses do not depend on the split. The flow of batches
//! is described in `docs/pipeline.md`.

mod blocking;
mod check;
mod checkpoint;
mod dry_run;
mod error;
mod evaluation;
mod event;
mod features;
mod guest;
mod host_loads;
mod int8;
mod job;
mod measure;
mod model_metadata;
mod offer;
mod pipeline;
mod predict;
mod recipe;
pub mod rehearsal;
mod replan;
mod setup;
mod study;
#[cfg(test)]
mod tests;
mod training;
mod upload;
mod verify;
pub(crate) use blocking::blocking;
pub use frostline_sealed::whole_file;

pub use checkpoint::{RunFolder, RunState, RunSummary, can_resume, recorded_job, runs, unfinished};
pub use dry_run::{PlannedJob, plan};
pub use error::{SmallerBatch, TrainerError, WrittenModel};
pub use evaluation::{ClassFigures, ConfusedPair, LabelFigures, Tables, TargetFigures, evaluate};
pub use event::Evaluation;
pub use frostline_compute::ComputeError;
pub use frostline_job::{
    ClassWeights, Conflict, EncodingChoice, Event, Events, FetchLimits, JobResult, JobSpec, Keep,
    LearningRates, LinkPoint, ListedData, LossName, Measuring, Objective, OnBadSample, OptimizerName,
    ParsePolicyError, Policy, Prices, ProfileState, Quality, Received, Recipe, Sampling, Scheduler,
    SettingError, TrainedEpoch, TrainedStep, Unfreezing,
};
pub use frostline_plan::{
    Bottleneck, Cost, Explanation, Modules, PlanError, Reuse, Rival, ShortestJob, Simulation,
    SimulationError, Stages, Summary, SummaryRow, Usage, Work,
};
pub use frostline_profile::{ProfileFolder, cut_tensors};
pub use guest::Guest;
pub use int8::{QuantizationJob, quantize};
pub use job::{EvaluationJob, Job, feature_cache, frozen_up_to, last_cut_before_head};
pub use model_metadata::{Int8Note, input_pixels, normalized_twice, read_pixels_beside};
pub use predict::{
    Answer, ClassProbability, GuestFiles, LabelAnswer, LocalFiles, Prediction, PredictionJob, Predictor,
    TargetValue,
};
pub use study::{HostStudy, StudyJob, study};
pub use training::{fetcher, train};
pub use verify::{COMPARED_IMAGES, CutActivations};
