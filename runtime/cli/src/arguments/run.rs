//! Runs that are kept.

use clap::Args;
use std::path::PathBuf;

/// List runs with their status, epochs and best metric
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline runs
  frostline runs ./experiments --json")]
pub(crate) struct Runs {
    /// The folder they are kept in
    #[arg(value_name = "DIR", default_value = "runs")]
    pub(crate) folder: PathBuf,
}
