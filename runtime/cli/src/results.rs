//! Output files in the folder of a run, generated from the job's events.

use frostline_job::folder::{METRICS, REPORT, TENSORBOARD};
use frostline_report::Run;
use frostline_sealed::whole_file;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes the report, metrics and TensorBoard file to the folder of a run. Returns the path of the report.
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
