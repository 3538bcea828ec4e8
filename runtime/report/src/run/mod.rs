//! What a run folder says, read.

mod files;
mod journal;
mod mistakes;
mod plan;
mod predictions;
mod settings;
mod steps;

pub(crate) use journal::{Dataset, Epoch, Figures, Journal, Moment, MomentKind};
pub(crate) use mistakes::{Measure, Mistake};
pub(crate) use plan::{Candidate, Plan};
pub(crate) use predictions::{ClassPredictions, LabelScore, Labels, Predictions, TargetScore, Targets};
pub(crate) use settings::Settings;
pub(crate) use steps::Step;

use crate::ReportError;
use frostline_job::folder::{self as layout, Ending};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// A run as read from its folder.
///
/// Takes at most some tens of megabytes: of very long jobs not every step is kept, of mistakes not every image.
#[derive(Debug)]
pub struct Run {
    pub(crate) name: String,
    /// When it began, in seconds since 1970, as its last event and the file's time say.
    pub(crate) started: f64,
    pub(crate) settings: Settings,
    /// How it ended; `None` of one that runs, or was killed.
    pub(crate) ending: Option<Ending>,
    pub(crate) journal: Journal,
    pub(crate) plan: Option<Plan>,
    pub(crate) predictions: Option<Predictions>,
    pub(crate) mistakes: Vec<Mistake>,
}

impl Run {
    /// Reads `folder`, whose `events.jsonl` alone has to be there; a last line that was cut off in it is left out.
    ///
    /// # Errors
    /// [`ReportError::NoRun`] without that file, else what is broken, by file and line.
    pub fn read(folder: &Path) -> Result<Self, ReportError> {
        let events = folder.join(layout::EVENTS);
        if !events.is_file() {
            return Err(ReportError::NoRun {
                folder: folder.to_owned(),
            });
        }
        let journal = Journal::read(&events)?;
        let whole = folder.canonicalize();
        let named = whole.as_deref().unwrap_or(folder).file_name();
        Ok(Self {
            name: named.map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned()),
            started: modified(&events)? - journal.ended,
            ending: layout::ending(folder),
            settings: Settings::read(&folder.join(layout::CONFIG))?,
            plan: Plan::read(&folder.join(layout::PLAN))?,
            predictions: Predictions::read(&folder.join(layout::PREDICTIONS))?,
            mistakes: mistakes::read(&folder.join(layout::MISTAKES))?,
            journal,
        })
    }

    /// The folder's name.
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
