use frostline_features::folder_of_user;
use frostline_profile::{FolderError, ProfileFolder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;

/// Cache for profiles of trainers on the local disk. It holds up to 256 profiles, which expire after 30 days.
#[derive(Debug, Clone)]
pub struct ProfileCache {
    folder: ProfileFolder,
}

impl ProfileCache {
    /// Opens the user's cache in `$XDG_CACHE_HOME/frostline` or `~/.cache/frostline`. Returns `None` if
    /// neither `XDG_CACHE_HOME` nor `HOME` is an absolute path.
    pub fn of_user() -> Option<Self> {
        folder_of_user().map(Self::at)
    }

    /// Opens a cache in `folder`. The folder is created for the first profile.
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
