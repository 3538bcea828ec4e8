//! What a run's folder has for people and for other programs, made of what the job wrote there.

use frostline_job::folder::{METRICS, REPORT, TENSORBOARD};
use frostline_report::Run;
use frostline_trainer::whole_file;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes report, metrics and TensorBoard's file into the folder of a run, and returns the report's place.
///
/// # Errors
/// What cannot be read or written, in words.
pub(crate) fn write(folder: &Path) -> Result<PathBuf, String> {
    let run = Run::read(folder).map_err(|error| error.to_string())?;
    let report = folder.join(REPORT);
    let page = frostline_report::html(std::slice::from_ref(&run));
    for (name, bytes) in [
        (METRICS, frostline_report::metrics_csv(&run).into_bytes()),
        (TENSORBOARD, frostline_report::tensorboard(&run)),
        (REPORT, page.into_bytes()),
    ] {
        let file = folder.join(name);
        whole_file::write(&file, |file| file.write_all(&bytes))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(report)
}
