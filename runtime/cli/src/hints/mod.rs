//! Hints about the next step after an error.
//!
//! Library crates return causes. This file maps each cause to a change of the failed command line or to
//! another command. A hint is shown only if the suggested command line parses, so it cannot name a flag that
//! the command does not have, or that excludes another flag on the command line.

mod command_line;

pub(crate) use command_line::CommandLine;

use frostline_client::{DatasetError, ExpectedLabels, LabelsError};
use frostline_graph::{GraphError, InputSize};
use frostline_job::{Conflict, SettingError};
use frostline_server::{StartError, StateError};
use frostline_trainer::{ComputeError, PlanError, SmallerBatch, TrainerError};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of outputs of a network to suggest.
const MOST_OUTPUTS: usize = 3;

/// Suggested next step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum NextStep {
    /// The failed command with other flags. Names contain underscores, like settings.
    Again {
        /// Flags to set. `true` is a flag without a value, and null a value that only the user knows.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        set: BTreeMap<String, Value>,
        /// Flags to remove.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        unset: Vec<String>,
    },
    /// Another command, without the name of the program.
    Run {
        /// The arguments.
        run: Vec<String>,
    },
}

impl NextStep {
    /// Sets a flag of the failed command.
    pub(crate) fn set(name: &str, value: impl Into<Value>) -> Self {
        Self::set_all([(name, value.into())])
    }

    /// Sets several flags of the failed command.
    pub(crate) fn set_all<const N: usize>(flags: [(&str, Value); N]) -> Self {
        Self::Again {
            set: flags.map(|(name, value)| (name.to_owned(), value)).into(),
            unset: Vec::new(),
        }
    }

    /// Removes flags from the failed command.
    pub(crate) fn unset(names: Vec<String>) -> Self {
        Self::Again {
            set: BTreeMap::new(),
            unset: names,
        }
    }

    /// Suggests another command.
    pub(crate) fn run(words: &[&str]) -> Self {
        Self::Run {
            run: words.iter().map(|word| (*word).to_owned()).collect(),
        }
    }
}

/// An error with steps that only the command knows, such as the run to resume. They replace the steps for the
/// cause.
#[derive(Debug)]
pub(crate) struct Hinted {
    error: anyhow::Error,
    steps: Vec<NextStep>,
}

impl Hinted {
    pub(crate) fn wrap(error: impl Into<anyhow::Error>, steps: Vec<NextStep>) -> anyhow::Error {
        anyhow::Error::new(Self {
            error: error.into(),
            steps,
        })
    }
}

impl fmt::Display for Hinted {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(to)
    }
}

impl std::error::Error for Hinted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error.as_ref())
    }
}

/// A step that fits the failed command line.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Hint {
    #[serde(skip)]
    pub(crate) text: String,
    #[serde(flatten)]
    pub(crate) step: NextStep,
}

/// Returns the alternatives for the next step after `error`.
pub(crate) fn hints(error: &anyhow::Error, line: &CommandLine) -> Vec<Hint> {
    let steps = error
        .chain()
        .map(|cause| steps(cause, line))
        .find(|steps| !steps.is_empty());
    steps
        .into_iter()
        .flatten()
        .filter_map(|step| {
            Some(Hint {
                text: line.text(&step)?,
                step,
            })
        })
        .collect()
}

/// Returns the steps for a cause. Sources are ignored.
fn steps(cause: &(dyn std::error::Error + 'static), line: &CommandLine) -> Vec<NextStep> {
    if let Some(Hinted { steps, .. }) = cause.downcast_ref() {
        steps.clone()
    } else if let Some(error) = cause.downcast_ref() {
        for_job(error, line)
    } else if let Some(error) = cause.downcast_ref() {
        for_network(error, line)
    } else if let Some(error) = cause.downcast_ref() {
        for_data(error)
    } else if let Some(error) = cause.downcast_ref() {
        for_labels(error)
    } else if let Some(error) = cause.downcast_ref() {
        for_setting(error)
    } else if let Some(StartError::State(StateError::UnknownTokens { .. })) = cause.downcast_ref() {
        vec![NextStep::set("tokens", "revoke"), NextStep::set("tokens", "keep")]
    } else {
        Vec::new()
    }
}

/// Returns the steps after the error of a job.
pub(crate) fn for_job(error: &TrainerError, line: &CommandLine) -> Vec<NextStep> {
    match error.cause() {
        TrainerError::Dataset(error) => for_data(error),
        TrainerError::Graph(error)
        | TrainerError::Compute(ComputeError::Graph(error))
        | TrainerError::Model { source: error, .. } => for_network(error, line),
        TrainerError::Setting(error) => for_setting(error),
        TrainerError::Unlabeled { .. } => vec![NextStep::set("labels", Value::Null)],
        TrainerError::Compute(ComputeError::Standardize { .. }) => {
            vec![NextStep::unset(vec!["standardize".to_owned()])]
        }
        TrainerError::Untrainable {
            earliest: Some(cut), ..
        } => vec![NextStep::set("freeze", cut.as_str())],
        TrainerError::GuestNeeded { .. } => vec![NextStep::set("guest", Value::Null)],
        TrainerError::Plan(PlanError::Policy { .. }) => show_cuts(line),
        TrainerError::OptimizedWrongly {
            on_this_machine: true,
            ..
        } => {
            let cuts = ["freeze", "cut"].map(|flag| NextStep::set(flag, Value::Null));
            cuts.into_iter().chain(show_cuts(line)).collect()
        }
        TrainerError::Imprecise { .. } => vec![
            NextStep::set("prefix_precision", "auto"),
            NextStep::set("allow_imprecise", true),
        ],
        TrainerError::Memory { needed, batches, .. } => {
            let limit = needed.saturating_mul(*batches as u64);
            vec![NextStep::set("memory_bytes", limit.to_string())]
        }
        TrainerError::StepMemory {
            smaller: Some(SmallerBatch { batch, accumulation }),
            ..
        } => vec![NextStep::set_all([
            ("batch", batch.to_string().into()),
            ("gradient_accumulation_steps", accumulation.to_string().into()),
        ])],
        TrainerError::BadSample { .. } => vec![NextStep::set("on_bad_sample", "skip")],
        _ => Vec::new(),
    }
}

fn for_network(error: &GraphError, line: &CommandLine) -> Vec<NextStep> {
    match error {
        GraphError::InputShape {
            size: InputSize::Open(size),
            ..
        } => vec![NextStep::set("image_size", size.to_string())],
        GraphError::InputShape {
            size: InputSize::Fixed,
            ..
        } => vec![NextStep::unset(vec!["image_size".to_owned()])],
        GraphError::Outputs { names } | GraphError::UnknownOutput { names, .. } => {
            let names = names.iter().take(MOST_OUTPUTS);
            names.map(|name| NextStep::set("output", name.as_str())).collect()
        }
        GraphError::UnknownCut { .. } => show_cuts(line),
        _ => Vec::new(),
    }
}

/// Suggests to list the cuts of the network of the failed command.
fn show_cuts(line: &CommandLine) -> Vec<NextStep> {
    let model = line.typed("model");
    let steps = model.map(|model| NextStep::run(&["model", "show", &model]));
    steps.into_iter().collect()
}

fn for_data(error: &DatasetError) -> Vec<NextStep> {
    match error {
        DatasetError::Labels(error) => for_labels(error),
        DatasetError::OutwardLinks { .. } => vec![NextStep::set("follow_links", Value::Null)],
        DatasetError::NotDivided { .. } => vec![NextStep::set("validation", "0.2")],
        DatasetError::DividedTwice { .. } => vec![NextStep::unset(vec!["validation".to_owned()])],
        _ => Vec::new(),
    }
}

fn for_labels(error: &LabelsError) -> Vec<NextStep> {
    let step = match error.expected {
        Some(ExpectedLabels::Labels) => NextStep::set("loss", "bce"),
        Some(ExpectedLabels::Numbers) => NextStep::set("loss", "mse"),
        Some(ExpectedLabels::UnlistedOmitted) => NextStep::set("unlisted", "skip"),
        None => return Vec::new(),
    };
    vec![step]
}

fn for_setting(error: &SettingError) -> Vec<NextStep> {
    let Some(conflict) = &error.conflict else {
        return Vec::new();
    };
    match conflict {
        Conflict::NoPrices => vec![NextStep::set("prices", "host=0.05,trainer=0.20,gb=0.09")],
        Conflict::PrefixNotInt8 => vec![NextStep::set("prefix_precision", "int8")],
        Conflict::NoFixedSplit => vec![NextStep::set("split", "none")],
        Conflict::TwoRecipes => vec![NextStep::unset(vec!["parameters".to_owned()])],
        Conflict::KeptStandardized => vec![
            NextStep::unset(vec!["standardize".to_owned()]),
            NextStep::set("head", "replace"),
        ],
        Conflict::HeadNotKept => vec![NextStep::set("head", "replace")],
        Conflict::NoHead => vec![NextStep::set("head", "linear")],
        Conflict::OtherDivision { share, seed } => vec![NextStep::set_all([
            ("validation", share.clone().into()),
            ("validation_seed", seed.to_string().into()),
        ])],
    }
}

#[cfg(test)]
mod tests;
