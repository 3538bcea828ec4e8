//! Copies of a state, for whoever looks after hosts; no host need run.

use super::assembly::state_store;
use super::error::StartError;
use crate::config::StateLocation;
use crate::state::{RestoreReport, RestoredTokens, StateReport, back_up, restore, verify};
use frostline_objects::Store;
use std::sync::Arc;

/// Copies a state, which hosts may go on changing, to an empty place or over an earlier backup of it.
///
/// # Errors
/// [`StartError`] where either cannot be used.
pub async fn back_up_state(state: &StateLocation, to: &StateLocation) -> Result<StateReport, StartError> {
    Ok(back_up(&existing(state)?, &state_store(to)?).await?)
}

/// Reads all of a state or a backup, and checks every byte.
///
/// # Errors
/// [`StartError`] where it cannot be read.
pub async fn verify_state(state: &StateLocation) -> Result<StateReport, StartError> {
    Ok(verify(&existing(state)?).await?)
}

/// Makes a state what a backup holds, but for tokens: those that the state has now let in, or as `tokens` says. Hosts that run on it reload
/// it within a minute.
///
/// # Errors
/// [`StartError`] where either cannot be used, and where it is not known which tokens were revoked.
pub async fn restore_state(
    backup: &StateLocation,
    state: &StateLocation,
    tokens: Option<RestoredTokens>,
) -> Result<RestoreReport, StartError> {
    Ok(restore(&existing(backup)?, &state_store(state)?, tokens).await?)
}

/// What is there; a directory that is not is not made.
fn existing(place: &StateLocation) -> Result<Arc<Store>, StartError> {
    if let StateLocation::Directory(path) = place {
        std::fs::metadata(path).map_err(|source| StartError::Directory {
            path: path.clone(),
            source,
        })?;
    }
    state_store(place)
}
