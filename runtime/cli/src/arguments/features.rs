//! Rows that are kept from one epoch and one job to the next.

use clap::{Args, Subcommand};
use frostline_features::Cache;
use frostline_job::CacheLimit;
use frostline_trainer::feature_cache;
use std::path::PathBuf;

/// Where a command that needs rows caches them, and how many.
#[derive(Debug, Args)]
pub(crate) struct FeatureCache {
    /// Disk that cached rows may take, or off: rows that a job or an extraction cached are not computed again [default: half of what the
    /// disk has free]
    #[arg(
        long,
        value_name = "SIZE|off",
        env = "FROSTLINE_FEATURE_CACHE",
        hide_env_values = true
    )]
    pub(crate) feature_cache: Option<CacheLimit>,
    #[command(flatten)]
    place: FeaturePlace,
}

impl FeatureCache {
    /// The cache; `None` where it is off, or where nobody says where it is.
    pub(crate) fn open(&self) -> Option<Cache> {
        feature_cache(self.feature_cache, self.place.feature_folder.as_deref())
    }
}

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
