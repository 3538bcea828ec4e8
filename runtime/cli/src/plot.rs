//! Converts results to figures for `--plot`.

use anyhow::{Context, Result};
use frostline_report::Cut;
use frostline_trainer::{HostStudy, whole_file};
use std::io::Write;
use std::path::Path;

/// Batch size for the compute times.
const BATCH: f64 = 16.0;

/// Returns the figure of `study` with the name of the network in the title.
pub(crate) fn cuts(name: &str, study: &HostStudy) -> String {
    let platform = &study.profile.platform;
    let cuts = study.profile.cuts.iter().map(|cut| Cut {
        name: cut.name.clone(),
        bytes: cut.bytes_per_sample,
        milliseconds: cut.compute.at(BATCH) / BATCH * 1e3,
    });
    let title = format!("{name}: bytes and compute up to each cut");
    let subtitle = format!(
        "measured on {}, threads per lane: {}, batches of {BATCH:.0}",
        platform.machine, platform.threads_per_lane
    );
    let weights = [study.object_bytes, study.input_bytes];
    frostline_report::cuts(&title, &subtitle, &cuts.collect::<Vec<_>>(), weights)
}

/// Writes a figure to `file`.
///
/// # Errors
/// Returns an error with the path if the file cannot be written.
pub(crate) fn write(file: &Path, figure: &str) -> Result<()> {
    whole_file::write(file, |to| to.write_all(figure.as_bytes()))
        .with_context(|| format!("cannot write the figure to {}", file.display()))
}
