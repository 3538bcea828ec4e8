//! Parsing of run folders.

mod files;
mod journal;
mod mistakes;
mod plan;
mod predictions;
mod settings;
mod steps;

pub(crate) use journal::{Epoch, Moment, MomentKind, RunJournal};
pub(crate) use mistakes::RecordedMistake;
pub(crate) use plan::{RecordedCandidate, RecordedPlan};
pub(crate) use predictions::{PredictionTotals, Score};
pub(crate) use settings::RecordedSettings;
pub(crate) use steps::RecordedStep;

use crate::ReportError;
use frostline_job::folder::{self as layout, FinalState};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Contents of a run folder.
///
/// A run needs up to some tens of megabytes of memory, because steps of very long jobs are sampled and images
/// are limited.
#[derive(Debug)]
pub struct Run {
    pub(crate) name: String,
    /// Unix time of the start in seconds, calculated from the last event and the modification time of the
    /// file.
    pub(crate) started: f64,
    pub(crate) settings: RecordedSettings,
    /// Final state. `None` if the job is running or was killed.
    pub(crate) ending: Option<FinalState>,
    pub(crate) journal: RunJournal,
    pub(crate) plan: Option<RecordedPlan>,
    pub(crate) predictions: Option<PredictionTotals>,
    pub(crate) mistakes: Vec<RecordedMistake>,
}

impl Run {
    /// Reads a run. Only `events.jsonl` is required. If its last line is incomplete, the line is ignored.
    ///
    /// # Errors
    /// Returns [`ReportError::NoRun`] if `events.jsonl` is missing. Otherwise, returns
    /// [`ReportError::Unreadable`] or [`ReportError::Broken`] for the first file that cannot be read or
    /// parsed.
    pub fn read(folder: &Path) -> Result<Self, ReportError> {
        let events = folder.join(layout::EVENTS);
        if !events.is_file() {
            return Err(ReportError::NoRun {
                folder: folder.to_owned(),
            });
        }
        let journal = RunJournal::read(&events)?;
        let whole = folder.canonicalize();
        let named = whole.as_deref().unwrap_or(folder).file_name();
        Ok(Self {
            name: named.map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned()),
            started: modified(&events)? - journal.duration,
            ending: layout::final_state(folder),
            settings: RecordedSettings::read(&folder.join(layout::CONFIG))?,
            plan: RecordedPlan::read(&folder.join(layout::PLAN))?,
            predictions: PredictionTotals::read(&folder.join(layout::PREDICTIONS), &journal.data.classes)?,
            mistakes: mistakes::read(&folder.join(layout::MISTAKES))?,
            journal,
        })
    }

    /// Returns the name of the folder.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn modified(file: &Path) -> Result<f64, ReportError> {
    let time = file.metadata().and_then(|of| of.modified());
    let time = time.map_err(|error| ReportError::unreadable(file, error))?;
    Ok(time
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64()))
}
