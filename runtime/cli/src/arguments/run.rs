//! Flags of a run: its folder, how it goes on, and which epoch it comes to.

use clap::{Args, ValueEnum};
use frostline_trainer::Keep;
use std::path::PathBuf;

/// What a job keeps, to go on after anything.
#[derive(Debug, Args)]
#[command(next_help_heading = "Run")]
pub(crate) struct RunFlags {
    /// Where runs are kept, each in a folder of its own with its settings, events, checkpoints and model
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub(crate) runs: PathBuf,
    /// Go on with this run, a folder, from its newest checkpoint; without a folder, with the newest unfinished one. Other flags need not be given again; one
    /// that makes it another job is refused. With --model and --data, and no folder, the newest unfinished run that is this job
    #[arg(long, value_name = "RUN", num_args = 0..=1)]
    #[allow(clippy::option_option)]
    pub(crate) resume: Option<Option<PathBuf>>,
    /// Write a checkpoint every so many steps too; by default after each epoch and, within one, every five minutes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) checkpoint_steps: Option<u64>,
    /// Which epoch's weights are written: those that do best on the validation images, or the last
    #[arg(long, value_enum, default_value_t = KeepName::Best)]
    pub(crate) keep: KeepName,
    /// End after so many epochs without a better one on the validation images
    #[arg(long, value_name = "EPOCHS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) patience: Option<u32>,
    /// Come to the same weights bit for bit however often the job is interrupted, on the same machine: one split for all of it, and layers run on the
    /// hosts in batches of one size (--fixed-batch, by default 16)
    #[arg(long, conflicts_with = "shared_runs")]
    pub(crate) reproducible: bool,
}

/// The values of `--keep`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum KeepName {
    Best,
    Last,
}

impl From<KeepName> for Keep {
    fn from(name: KeepName) -> Self {
        match name {
            KeepName::Best => Self::Best,
            KeepName::Last => Self::Last,
        }
    }
}

/// List runs: whether each goes on, its epochs and its best figure
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
