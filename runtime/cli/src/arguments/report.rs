//! Arguments of the commands for the folders of runs.

use clap::Args;
use std::path::PathBuf;

/// Write a report about a run (curves, classes, mistakes, timeline, plan), or compare several runs
///
/// The report is a single HTML page that works offline. Writes report.html to the folder of the run and
/// prints the path.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline report runs/2026-11-23T10-00-00-clothing
  frostline report runs/*-clothing --out clothing.html")]
pub(crate) struct ReportFlags {
    /// Folders of the runs or sweeps
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Write the report to this file (required for several runs)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// List runs with state, epochs and best metric
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline runs
  frostline runs ./experiments --json")]
pub(crate) struct RunsFlags {
    /// Folder that contains the runs
    #[arg(value_name = "DIR", default_value = "runs")]
    pub(crate) folder: PathBuf,
}
