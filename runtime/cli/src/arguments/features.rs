//! Arguments of the feature cache.

use clap::{Args, Subcommand};
use frostline_features::Cache;
use frostline_job::CacheLimit;
use frostline_trainer::feature_cache;
use std::path::PathBuf;

/// Size and location of the feature cache.
#[derive(Debug, Args)]
pub(crate) struct CacheFlags {
    /// Maximum size of the feature cache on disk (off disables the cache). Cached features are reused by
    /// later epochs, jobs and extractions [default: half of the free disk space]
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

impl CacheFlags {
    /// Opens the cache. Returns `None` if the cache is off or no folder is known.
    pub(crate) fn open(&self) -> Option<Cache> {
        feature_cache(self.feature_cache, self.place.feature_folder.as_deref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct FeaturePlace {
    /// Folder of the feature cache [default: frostline/features in the user's cache folder]
    #[arg(
        long,
        value_name = "DIRECTORY",
        env = "FROSTLINE_FEATURE_FOLDER",
        hide_env_values = true
    )]
    pub(crate) feature_folder: Option<PathBuf>,
}

/// Show or clear the feature cache
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List the cached features, starting with the most recently used
    #[command(after_help = "Example:\n  frostline cache list")]
    List {
        #[command(flatten)]
        place: FeaturePlace,
    },
    /// Remove cached features, except features in use by a job
    #[command(after_help = "\
Examples:
  frostline cache clear
  frostline cache clear 0f3c9d0e51c07a4be3f84d3a1c9f0a77")]
    Clear {
        /// Only remove these entries, see `frostline cache list`
        names: Vec<String>,
        #[command(flatten)]
        place: FeaturePlace,
    },
}

impl FeaturePlace {
    /// Returns the folder, or `None` if neither the flag nor the environment determines the folder.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.feature_folder.clone().or_else(Cache::usual_folder)
    }
}
