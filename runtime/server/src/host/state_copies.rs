//! Copies of a state, for whoever looks after hosts; no host need run.

use super::assembly::state_store;
use super::error::StartError;
use crate::accounting::copy_usage;
use crate::audit::copy_audit;
use crate::config::{StateLocation, Stores};
use crate::state::{RestoreReport, RestoredTokens, StateReport, back_up, restore, verify};
use frostline_objects::Store;
use std::sync::Arc;

/// Copies a state, which hosts may go on changing, to an empty place or over an earlier backup of it. `stores` says how buckets are reached, here
/// and below.
///
/// # Errors
/// [`StartError`] where either cannot be used.
pub async fn back_up_state(
    state: &StateLocation,
    to: &StateLocation,
    stores: &Stores,
) -> Result<StateReport, StartError> {
    let (state, to) = (existing(state, stores)?, state_store(to, stores)?);
    let report = back_up(&state, &to).await?;
    copy_usage(&state, &to).await?;
    copy_audit(&state, &to).await?;
    Ok(report)
}

/// Reads all of a state or a backup, and checks every byte.
///
/// # Errors
/// [`StartError`] where it cannot be read.
pub async fn verify_state(state: &StateLocation, stores: &Stores) -> Result<StateReport, StartError> {
    Ok(verify(&existing(state, stores)?).await?)
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
    stores: &Stores,
) -> Result<RestoreReport, StartError> {
    let (backup, state) = (existing(backup, stores)?, state_store(state, stores)?);
    let report = restore(&backup, &state, tokens).await?;
    copy_usage(&backup, &state).await?;
    copy_audit(&backup, &state).await?;
    Ok(report)
}

/// What is there; a directory that is not is not made.
fn existing(place: &StateLocation, stores: &Stores) -> Result<Arc<Store>, StartError> {
    if let StateLocation::Directory(path) = place {
        std::fs::metadata(path).map_err(|source| StartError::Directory {
            path: path.clone(),
            source,
        })?;
    }
    state_store(place, stores)
}
