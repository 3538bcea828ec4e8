//! Rows that are kept from one epoch and one job to the next.

use super::value::size;
use clap::{Args, Subcommand};
use frostline_features::Cache;
use std::path::PathBuf;

/// Bytes that rows may take, or none at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Off,
    Bytes(u64),
}

#[derive(Debug, Args)]
pub(crate) struct FeatureFlags {
    /// Disk that rows at the freeze cut may take, so that the frozen layers run once for each image, or off; those of the job used longest ago go
    /// first [default: half of what the disk has free, so that it never fills up]
    #[arg(long, value_name = "SIZE|off", value_parser = limit, env = "FROSTLINE_FEATURE_CACHE", hide_env_values = true)]
    pub(crate) feature_cache: Option<Limit>,
    #[command(flatten)]
    pub(crate) place: FeaturePlace,
}

#[derive(Debug, Args)]
pub(crate) struct TeamFlags {
    /// Share kept rows with other machines through this folder or bucket (s3://, gs://, az://): what a colleague's job kept is not computed again
    #[arg(
        long,
        value_name = "URL",
        env = "FROSTLINE_FEATURE_STORE",
        hide_env_values = true
    )]
    pub(crate) feature_store: Option<String>,
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

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "off" => Ok(Limit::Off),
        text => size(text)
            .map(Limit::Bytes)
            .map_err(|error| format!("{error}; or off")),
    }
}

impl FeaturePlace {
    /// The folder; `None` where neither a flag nor the environment says.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.feature_folder.clone().or_else(Cache::usual_folder)
    }
}

impl FeatureFlags {
    /// Where rows are kept; `None` where they are not.
    pub(crate) fn cache(&self) -> Option<Cache> {
        let folder = self.place.folder()?;
        let limit = match self.feature_cache {
            Some(Limit::Off) => return None,
            Some(Limit::Bytes(bytes)) => bytes,
            None => Cache::usual_limit(&folder)?,
        };
        Some(Cache::new(folder, limit))
    }
}
