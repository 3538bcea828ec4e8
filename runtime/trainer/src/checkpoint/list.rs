//! The runs of a folder.

use super::folder::{self, CHECKPOINTS, Conclusion, EVENTS};
use super::record::events_of;
use super::run_folder::RunFolder;
use super::settings::Settings;
use super::{lock, shelf};
use crate::{Job, TrainerError};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What a run came to so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// Its folder's name.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// The network that is trained.
    pub model: String,
    /// Whether it goes on.
    pub state: RunState,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Epochs that ended.
    pub epochs_done: u32,
    /// Epochs it is to have.
    pub epochs: u32,
    /// The best epoch so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_epoch: Option<u32>,
    /// What it is compared by, such as `validation_accuracy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
    /// That of the best epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<f64>,
    /// Seconds since it began.
    pub age_seconds: u64,
}

/// Whether a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RunState {
    /// A job has it.
    Running,
    /// Its model was written after its last epoch.
    Finished,
    /// It was told to stop, or killed; it can be gone on with.
    Interrupted,
    /// It ended with an error.
    Failed,
}

/// The runs in `folder`, the newest first; what is no run is left out.
///
/// # Errors
/// The system's. A folder that is not there has no runs.
pub fn runs(folder: &Path) -> io::Result<Vec<RunSummary>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut runs = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let Ok(config) = folder::config(&path) else {
            continue;
        };
        runs.push((config.created, summary(path, config.created, &config.settings)?));
    }
    runs.sort_by(|left, right| (right.0, &right.1.name).cmp(&(left.0, &left.1.name)));
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

/// The newest run in `folder` that is the checked `job` and has not finished, to go on with.
///
/// # Errors
/// [`TrainerError::Resume`] where there is none, with why the newest one is none.
pub fn unfinished(folder: &Path, job: &Job) -> Result<RunFolder, TrainerError> {
    let refused = |why: String| TrainerError::Resume {
        run: folder.to_owned(),
        why,
    };
    let now = Settings::of(job)?;
    let mut first = None;
    for run in runs(folder).map_err(|error| refused(error.to_string()))? {
        let why = match run.state {
            RunState::Finished => Some("it has finished".to_owned()),
            RunState::Running => Some("it still runs".to_owned()),
            RunState::Interrupted | RunState::Failed => {
                let config = folder::config(&run.path).map_err(|error| refused(error.to_string()))?;
                config.settings.refusal(&now, &job.recipe, run.epochs_done)
            }
        };
        match why {
            None => return Ok(RunFolder::resumed(run.path)),
            Some(why) => first = first.or(Some(format!("the newest is {}: {why}", run.name))),
        }
    }
    let newest = first.unwrap_or_else(|| "there are no runs at all".to_owned());
    Err(refused(format!("no unfinished run in it is this job; {newest}")))
}

/// Whether the run in `folder` has a checkpoint that a job may go on from.
pub fn can_resume(folder: &Path) -> bool {
    shelf::any(&folder.join(CHECKPOINTS))
}

fn summary(path: PathBuf, created: u64, settings: &Settings) -> io::Result<RunSummary> {
    let (state, error) = match folder::conclusion(&path) {
        _ if lock::is_locked(&path)? => (RunState::Running, None),
        Some(Conclusion::Finished) => (RunState::Finished, None),
        Some(Conclusion::Failed { error }) => (RunState::Failed, Some(error)),
        Some(Conclusion::Interrupted) | None => (RunState::Interrupted, None),
    };
    let epochs = events_of(&path.join(EVENTS), "epoch");
    let number = |event: &Value| event.get("epoch").and_then(Value::as_u64).unwrap_or(0) as u32;
    let best = epochs.iter().filter_map(|event| {
        let (figure, score) = score(event)?;
        Some((number(event), figure, score))
    });
    let best = best.max_by(|left, right| left.2.0.total_cmp(&right.2.0));
    Ok(RunSummary {
        name: path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        model: settings.model().into_iter().next().unwrap_or_default(),
        state,
        error,
        epochs_done: epochs.iter().map(number).max().unwrap_or(0),
        epochs: settings.epochs(),
        best_epoch: best.as_ref().map(|(epoch, ..)| *epoch),
        figure: best.as_ref().map(|(_, figure, _)| (*figure).to_owned()),
        best: best.map(|(_, _, (_, value))| value),
        age_seconds: folder::now().saturating_sub(created),
        path,
    })
}

/// What an epoch is compared by: its name; the higher, the better, and as it is.
fn score(event: &Value) -> Option<(&'static str, (f64, f64))> {
    let figures = [
        ("validation_accuracy", 1.0),
        ("validation_mean_average_precision", 1.0),
        ("validation_rmse", -1.0),
    ];
    figures.into_iter().find_map(|(name, sign)| {
        let value = event.get(name)?.as_f64()?;
        Some((name, (sign * value, value)))
    })
}
