//! Layout of run folders.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Description of a sweep. Stored in the common folder of the runs.
pub const SWEEP: &str = "sweep.json";
/// Job settings in the format of [`JobSpec`](crate::JobSpec).
pub const CONFIG: &str = "config.json";
/// Job events. Each line is a [`LoggedEvent`](crate::LoggedEvent) event.
pub const EVENTS: &str = "events.jsonl";
/// Final state in the format of [`FinalState`]. This file is missing while a run is active, and after it was
/// killed.
pub const END: &str = "end.json";
/// Plan in the format of `frostline plan --json`.
pub const PLAN: &str = "plan.json";
/// Calibration ranges of the frozen layers for int8, and the results of the comparison with f32.
pub const INT8: &str = "int8.json";
/// Samples of the job.
pub const SAMPLES: &str = "samples.index";
/// Folder of checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";
/// Tuned model.
pub const MODEL: &str = "tuned.onnx";
/// Predictions for all validation samples.
pub const PREDICTIONS: &str = "predictions.csv";
/// Folder of the validation images with the largest errors.
pub const MISTAKES: &str = "mistakes";
/// Index of the images in [`MISTAKES`].
pub const MISTAKES_LIST: &str = "mistakes.json";
/// Report as a web page.
pub const REPORT: &str = "report.html";
/// Table of epochs.
pub const METRICS: &str = "metrics.csv";
/// Events for TensorBoard. The name is constant, so a resumed run has a single file.
pub const TENSORBOARD: &str = "events.out.tfevents.0.frostline";

/// Final state of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum FinalState {
    /// The model was written after the last epoch.
    Finished,
    /// The job was interrupted.
    Interrupted,
    /// The job failed.
    Failed {
        /// Error message on a single line.
        error: String,
    },
}

/// Returns the final state of the run in `folder`, or `None` if it is active or was killed.
pub fn final_state(folder: &Path) -> Option<FinalState> {
    serde_json::from_slice(&fs::read(folder.join(END)).ok()?).ok()
}
