use clap::Args;
use std::path::PathBuf;

/// Write the report of a run (curves, classes, mistakes, timeline, plan), or compare several runs
///
/// The page is one file that needs no network. It is written into the run's folder as report.html, and its path is printed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline report runs/2026-11-23T10-00-00-clothing
  frostline report runs/*-clothing --out clothing.html")]
pub(crate) struct Report {
    /// Folders of runs
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Where the page is written instead; needed for several runs
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}
