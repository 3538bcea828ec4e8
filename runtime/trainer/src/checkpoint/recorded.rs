use super::folder;
use crate::TrainerError;
use serde_json::{Map, Value};
use std::path::Path;

/// What a run was begun with, as its folder says it: enough to go on without saying it again.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Its settings by their flags' names, with underscores, but for the recipe; null where nothing was given.
    pub settings: Map<String, Value>,
    /// Its recipe, with all defaults.
    pub recipe: Map<String, Value>,
    /// What [`RunFolder::command`](crate::RunFolder) said.
    pub command: Map<String, Value>,
}

impl Recorded {
    /// Of the run in this folder.
    ///
    /// # Errors
    /// [`TrainerError::Resume`] where there is none, or where it cannot be read.
    pub fn read(run: &Path) -> Result<Self, TrainerError> {
        let refused = |why: String| TrainerError::Resume {
            run: run.to_owned(),
            why,
        };
        if !run.join(folder::CONFIG).is_file() {
            return Err(refused(folder::no_run()));
        }
        let config = folder::config(run).map_err(|error| refused(error.to_string()))?;
        let (recipe, settings) = config.settings.recipe_apart();
        Ok(Self {
            settings,
            recipe,
            command: config.command,
        })
    }
}
