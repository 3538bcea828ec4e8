//! Rows that are kept from one epoch and one job to the next.

use clap::{Args, Subcommand};
use frostline_features::Cache;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct FeaturePlace {
    /// The folder where rows are kept [default: frostline/features in the user's cache folder]
    #[arg(
        long,
        value_name = "DIRECTORY",
        env = "FROSTLINE_FEATURE_FOLDER",
        hide_env_values = true
    )]
    pub(crate) feature_folder: Option<PathBuf>,
}

/// Show or remove the rows that jobs kept
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show what is kept, the last used first
    #[command(after_help = "Example:\n  frostline cache list")]
    List {
        #[command(flatten)]
        place: FeaturePlace,
    },
    /// Remove what is kept, but for what a job uses
    #[command(after_help = "\
Examples:
  frostline cache clear
  frostline cache clear 0f3c9d0e51c07a4be3f84d3a1c9f0a77")]
    Clear {
        /// Only these, by their names in `frostline cache list`
        names: Vec<String>,
        #[command(flatten)]
        place: FeaturePlace,
    },
}

impl FeaturePlace {
    /// The folder; `None` where neither a flag nor the environment says.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.feature_folder.clone().or_else(Cache::usual_folder)
    }
}
