//! The layout of a run's folder, and how a run ended.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// What a sweep is, in the folder of its runs.
pub const SWEEP: &str = "sweep.json";
/// The job, as a [`JobSpec`](crate::JobSpec).
pub const CONFIG: &str = "config.json";
/// What happened, a [`Logged`](crate::Logged) event a line.
pub const EVENTS: &str = "events.jsonl";
/// How it ended, an [`Ending`]; without this file it was killed, or runs.
pub const END: &str = "end.json";
/// The plan, as `frostline plan --json` prints it.
pub const PLAN: &str = "plan.json";
/// The frozen layers in int8: ranges, and what came of them.
pub const INT8: &str = "int8.json";
/// The samples it went through.
pub const SAMPLES: &str = "samples.index";
/// The folder of checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";
/// The tuned model.
pub const MODEL: &str = "tuned.onnx";
/// What the model says of each validation sample.
pub const PREDICTIONS: &str = "predictions.csv";
/// The folder with what it is most wrong about.
pub const MISTAKES: &str = "mistakes";
/// What these are, in that folder.
pub const MISTAKES_LIST: &str = "mistakes.json";
/// The page for people.
pub const REPORT: &str = "report.html";
/// The epochs as a table.
pub const METRICS: &str = "metrics.csv";
/// For TensorBoard; of all runs the same, so that a run that is resumed has one.
pub const TENSORBOARD: &str = "events.out.tfevents.0.frostline";

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Ending {
    /// The model was written after the last epoch.
    Finished,
    /// It was told to stop.
    Interrupted,
    /// This went wrong.
    Failed {
        /// In a line.
        error: String,
    },
}

/// How the run in `folder` ended; `None` of one that runs, or was killed.
pub fn ending(folder: &Path) -> Option<Ending> {
    serde_json::from_slice(&fs::read(folder.join(END)).ok()?).ok()
}
