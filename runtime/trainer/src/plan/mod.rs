//! Split planning: predicts the duration and cost of a job for every split and chooses the best split.
//!
//! This module does not measure anything. The measurements are collected by `setup` and corrected by `replan`
//! while a job runs.

mod candidate;
mod choice;
mod cost;
mod explain;
mod layers;
mod links;
mod modules;
mod pipeline;
mod planner;
mod policy;
mod reuse;
mod scenario;
mod simulate;
mod stages;
mod summary;
mod survey;
#[cfg(test)]
mod tests;
mod text;
mod ties;
mod trainer_profile;

pub(crate) use candidate::{Candidate, Ranked, UsableSplit};
pub(crate) use choice::{ChosenSplit, Plan};
pub(crate) use cost::CostModel;
pub use cost::{Cost, Usage, Work};
pub use explain::{Explanation, Rival};
pub use frostline_job::LinkPoint;
pub(crate) use layers::LayersLocation;
pub(crate) use links::over_links;
pub use modules::Modules;
pub use pipeline::Bottleneck;
pub(crate) use pipeline::{Prediction, Workload};
pub(crate) use planner::Planner;
pub(crate) use policy::within as split_within;
pub use reuse::Reuse;
pub use simulate::{Simulation, SimulationError};
pub use stages::Stages;
pub use summary::{ShortestJob, Summary, SummaryRow};
pub(crate) use survey::{Slowdown, Survey};
pub(crate) use text::{list_first, rate};
pub(crate) use trainer_profile::TrainerProfile;
