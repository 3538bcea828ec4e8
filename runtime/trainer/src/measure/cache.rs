use frostline_features::folder_of_user;
use frostline_profile::{FolderError, ProfileFolder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;

/// Profiles of trainers on this machine's disk: at most 256, stale after 30 days.
#[derive(Debug, Clone)]
pub struct ProfileCache {
    folder: ProfileFolder,
}

impl ProfileCache {
    /// The user's own, `$XDG_CACHE_HOME/frostline` or `~/.cache/frostline`; `None` when the environment names neither.
    pub fn of_user() -> Option<Self> {
        folder_of_user().map(Self::at)
    }

    /// A cache in `folder`, created with the first profile.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: ProfileFolder::new(folder),
        }
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, model: &str, key: &impl Serialize) -> Option<T> {
        self.folder.get(model, key)
    }

    pub(crate) fn put(
        &self,
        model: &str,
        key: &impl Serialize,
        profile: &impl Serialize,
    ) -> Result<(), FolderError> {
        self.folder.put(model, key, profile)
    }
}
