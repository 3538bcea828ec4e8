//! Arguments of `frostline runs`.

use clap::Args;
use std::path::PathBuf;

/// List runs with state, epochs and best metric
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  frostline runs
  frostline runs ./experiments --json")]
pub(crate) struct Runs {
    /// Folder that contains the runs
    #[arg(value_name = "DIR", default_value = "runs")]
    pub(crate) folder: PathBuf,
}
