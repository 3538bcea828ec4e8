//! Backups of a state. No host has to be running.

use super::assembly::state_store;
use super::error::StartError;
use crate::config::{StateLocation, Stores, system_name};
use frostline_objects::Store;
use frostline_state::{
    Audit, Clock, LocalClock, RestoreReport, RestoredTokens, StateError, StateReport, back_up, restore,
    unique_id, verify,
};
use rustix::process::getuid;
use std::sync::Arc;

/// Copies a state to an empty location or over an earlier backup of it. Hosts can continue to use the state.
/// `stores` configures the access to buckets.
///
/// # Errors
/// Returns a [`StartError`] if the state cannot be read or the backup cannot be written.
pub async fn back_up_state(
    state: &StateLocation,
    to: &StateLocation,
    stores: &Stores,
) -> Result<StateReport, StartError> {
    let state = existing(state, stores)?;
    let to = state_store(to, stores)?;
    Ok(back_up(&state, &to).await?)
}

/// Reads a state or a backup completely and verifies all checksums.
///
/// # Errors
/// Returns a [`StartError`] if it cannot be read.
pub async fn verify_state(state: &StateLocation, stores: &Stores) -> Result<StateReport, StartError> {
    Ok(verify(&existing(state, stores)?).await?)
}

/// Replaces a state by a backup, and records this in the audit log. Running hosts reload the state within a
/// minute.
///
/// If `tokens` is `None`, the tokens of the existing state are used instead of those in the backup, so
/// revoked tokens stay revoked.
///
/// # Errors
/// Returns a [`StartError`] if the backup cannot be read, if the state cannot be written, or if `tokens` is
/// `None` and the existing state cannot be read to find revoked tokens.
pub async fn restore_state(
    backup: &StateLocation,
    state: &StateLocation,
    tokens: Option<RestoredTokens>,
    stores: &Stores,
) -> Result<RestoreReport, StartError> {
    let backup = existing(backup, stores)?;
    let state = state_store(state, stores)?;
    let report = restore(&backup, &state, tokens).await?;
    let run = unique_id().map_err(StateError::from)?;
    let who = format!("admin uid {}", getuid().as_raw());
    let detail = format!("from {}, as of change {}", backup.root(), report.state.change);
    let clock = Arc::new(Clock::new(LocalClock::default(), Arc::clone(&state)));
    let audit = Audit::new(state, run, system_name(), clock);
    audit.admin(&who, "state restored", "", detail).await;
    Ok(report)
}

/// Opens a state or backup that must exist. Unlike [`state_store`], this does not create a missing directory.
fn existing(place: &StateLocation, stores: &Stores) -> Result<Arc<Store>, StartError> {
    if let StateLocation::Directory(path) = place {
        std::fs::metadata(path).map_err(StartError::directory(path))?;
    }
    state_store(place, stores)
}
