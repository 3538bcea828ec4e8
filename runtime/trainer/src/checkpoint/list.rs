//! Lists the runs in a folder.

use super::record::epochs_of;
use super::run_folder::RunFolder;
use super::{checkpoints, config, lock};
use crate::{Job, JobSpec, TrainerError};
use frostline_job::folder::{CHECKPOINTS, EVENTS, FinalState, SWEEP};
use frostline_primitives::now;
use serde::Serialize;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// State and results of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// Name of the run's folder, preceded by the sweep's name and a slash in a sweep.
    pub name: String,
    /// Path of the folder.
    pub path: PathBuf,
    /// File name of the network, without extension.
    pub model: String,
    /// State of the run.
    pub state: RunState,
    /// Error message of a failed run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Number of completed epochs.
    pub epochs_done: u32,
    /// Number of configured epochs.
    pub epochs: u32,
    /// Number of the best completed epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_epoch: Option<u32>,
    /// Name of the ranking figure, such as `validation_accuracy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
    /// Value of this figure in the best epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<f64>,
    /// Seconds since the run was created.
    pub age_seconds: u64,
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RunState {
    /// A job holds the lock of the folder.
    Running,
    /// The job completed all epochs and wrote the model.
    Finished,
    /// The job was cancelled or killed. The run can be resumed.
    Interrupted,
    /// The job ended with an error.
    Failed,
}

/// Lists the runs in `folder` and in sweeps inside it, newest first. Other entries are skipped. Returns an
/// empty list if the folder does not exist.
///
/// # Errors
/// Returns the system's error if a folder or a lock cannot be read.
pub fn runs(folder: &Path) -> io::Result<Vec<RunSummary>> {
    let mut runs = Vec::new();
    for path in entries(folder)? {
        if let Ok(spec) = config::recorded_job(&path) {
            runs.push((spec.created, summary(path, &spec)?));
        } else if path.join(SWEEP).is_file() {
            for variant in entries(&path)? {
                if let Ok(spec) = config::recorded_job(&variant) {
                    let mut run = summary(variant, &spec)?;
                    let sweep = path.file_name().unwrap_or_default().to_string_lossy();
                    run.name = format!("{sweep}/{}", run.name);
                    runs.push((spec.created, run));
                }
            }
        }
    }
    runs.sort_by(|left, right| (right.0, &right.1.name).cmp(&(left.0, &left.1.name)));
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Returns the newest run in `folder` that matches the checked `job` and has not finished, to resume it.
///
/// # Errors
/// Returns [`TrainerError::Resume`] if no run matches, with the reason for the newest run.
pub fn unfinished(folder: &Path, job: &Job) -> Result<RunFolder, TrainerError> {
    let now = job.recorded()?;
    let mut first = None;
    let runs = runs(folder).map_err(|error| TrainerError::resume(folder, error.to_string()))?;
    for run in runs {
        let why = match run.state {
            RunState::Finished => Some("finished".to_owned()),
            RunState::Running => Some("still running".to_owned()),
            RunState::Interrupted | RunState::Failed => {
                frostline_job::refusal(&config::recorded_job(&run.path)?, &now, run.epochs_done)
            }
        };
        match why {
            None => return Ok(RunFolder::resumed(run.path)),
            Some(why) => first = first.or(Some(format!("the newest is {}: {why}", run.name))),
        }
    }
    let newest = first.unwrap_or_else(|| "the folder contains no runs".to_owned());
    let why = format!("no unfinished run matches this job; {newest}");
    Err(TrainerError::resume(folder, why))
}

/// Whether the run in `folder` has a checkpoint to resume from.
pub fn can_resume(folder: &Path) -> bool {
    checkpoints::any(&folder.join(CHECKPOINTS))
}

fn summary(path: PathBuf, spec: &JobSpec) -> io::Result<RunSummary> {
    let (state, error) = match frostline_job::folder::final_state(&path) {
        _ if lock::is_locked(&path)? => (RunState::Running, None),
        Some(FinalState::Finished) => (RunState::Finished, None),
        Some(FinalState::Failed { error }) => (RunState::Failed, Some(error)),
        Some(FinalState::Interrupted) | None => (RunState::Interrupted, None),
    };
    let epochs = epochs_of(&path.join(EVENTS));
    let numbers = epochs.iter().filter(|(_, quality)| quality.score().is_finite());
    let best = numbers.reduce(|best, epoch| {
        if epoch.1.compare(&best.1).is_gt() {
            epoch
        } else {
            best
        }
    });
    let judged = best.map(|(_, quality)| quality.main_metric());
    Ok(RunSummary {
        name: text_of(path.file_name()),
        model: text_of(spec.model.as_deref().and_then(Path::file_stem)),
        state,
        error,
        epochs_done: epochs.iter().map(|(epoch, _)| *epoch).max().unwrap_or(0),
        epochs: spec.recipe.epochs,
        best_epoch: best.map(|(epoch, _)| *epoch),
        figure: judged.map(|(figure, _)| format!("validation_{figure}")),
        best: judged.map(|(_, value)| value),
        age_seconds: now().saturating_sub(spec.created.unwrap_or_default()),
        path,
    })
}

fn text_of(name: Option<&OsStr>) -> String {
    name.unwrap_or_default().to_string_lossy().into_owned()
}
