//! Split planning: predicts the duration and cost of a job for every split, chooses the best split, and changes it
//! while the job runs. `docs/planning.md` describes the method.
//!
//! * [`Survey`] converts measurements of hosts and trainer to a [`Candidate`] for each [`UsableSplit`].
//! * [`Workload`] predicts the duration of a job as a pipeline of host, link and trainer, with a feature cache
//!   ([`Reuse`]) and a cost ([`CostModel`]).
//! * [`Planner`] chooses a candidate with a [`Policy`](frostline_job::Policy). [`Summary`] is the [`Plan`] for
//!   scripts, and [`Explanation`] for people.
//! * [`Replanner`] corrects the measurements with observed iterations and decides on changes of the split.
//! * [`Simulation`] plans with measurements from a file.
//!
//! This crate neither measures nor communicates, and all functions are pure. Times are in seconds and sizes in
//! bytes.

mod candidate;
mod choice;
mod cost;
mod error;
mod explain;
mod layers;
mod links;
mod modules;
mod pipeline;
mod planner;
mod policy;
mod replan;
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

pub use candidate::{Candidate, UsableSplit};
pub use choice::{ChosenSplit, Plan};
pub use cost::{Cost, CostModel, Usage, Work};
pub use error::PlanError;
pub use explain::{Explanation, Rival};
pub use layers::LayersLocation;
pub use modules::Modules;
pub use pipeline::{Bottleneck, Workload};
pub use planner::{Planner, round_to_grants};
pub use policy::resolve_cut;
pub use replan::{Change, Iteration, Replanner};
pub use reuse::Reuse;
pub use simulate::{Simulation, SimulationError};
pub use stages::Stages;
pub use summary::{ShortestJob, Summary, SummaryRow};
pub use survey::{Slowdown, Survey};
pub use trainer_profile::TrainerProfile;
