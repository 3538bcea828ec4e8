//! The change log, stored as `log/<20-digit number>.json` and numbered without gaps.
//!
//! A change is made by creating the object with the next number. If two hosts try this at the same time, one
//! of them fails and can tell. Checking for new changes means requesting an object that usually does not
//! exist, which is the cheapest request of a store.

use crate::error::StateError;
use crate::folder::{self, Folder, read_json, to_json};
use frostline_objects::{ObjectError, Store};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

const FOLDER: Folder = Folder::new("log");

/// Attempts to create a change if the outcome of the first one is unknown. The store's client already retries
/// each of them.
const TRIES: usize = 2;

/// An entry of the log. An entry with an empty kind has no effect. All fields except `content` have the same
/// meaning in every format.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Change {
    /// Format of the content, or 0 if written by a version without formats.
    pub(crate) format: u32,
    /// Random mark used by a host to recognize the changes it created.
    pub(crate) mark: String,
    /// `guests`, `models` or `tenants`. Empty for an entry without effect.
    pub(crate) kind: String,
    /// Name of the document.
    pub(crate) name: String,
    /// The new content, or `None` if the document was deleted.
    pub(crate) content: Option<Box<RawValue>>,
}

/// Number of changes per epoch. A restored state continues at the next multiple, which is higher than any
/// change a host of the previous state can create.
pub(crate) const EPOCH: u64 = 1_000_000_000;

/// A position in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Number of the last known change.
    pub(crate) number: u64,
    /// Mark of this change.
    pub(crate) mark: String,
}

/// Reads a change. Returns `None` if it does not exist yet or was already removed.
pub(crate) async fn read(store: &Store, number: u64) -> Result<Option<Change>, StateError> {
    match read_json(store, &key(number)).await {
        Ok(change) => Ok(Some(change)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates the change with this number; returns false if another change has it.
///
/// If a response is lost, the create may have succeeded, and a retry by the store's client then finds the
/// existing object. The mark is used to check whether this is the same change.
///
/// # Errors
/// Returns [`StateError::OutcomeUnknown`] if it is not known whether the change was created.
pub(crate) async fn create(store: &Store, number: u64, change: &Change) -> Result<bool, StateError> {
    let key = key(number);
    let json = to_json(&key, change)?;
    let mut lost = None;
    for _ in 0..TRIES {
        match store.put_new(&key, json.clone()).await {
            Ok(()) => return Ok(true),
            Err(error) if error.is_already_there() => {
                return match (read(store, number).await.map_err(unsure)?, lost) {
                    (Some(there), _) => Ok(there.mark == change.mark),
                    // The object is not visible yet, but it might be the one from an earlier attempt.
                    (None, Some(error)) => Err(StateError::OutcomeUnknown { error }),
                    (None, None) => Ok(false),
                };
            }
            Err(error) if may_have_been_done(&error) => lost = Some(error),
            Err(error) if lost.is_none() => return Err(error.into()),
            Err(error) => return Err(StateError::OutcomeUnknown { error }),
        }
    }
    lost.map_or(Ok(false), |error| Err(StateError::OutcomeUnknown { error }))
}

/// Checks that the change at `position` still exists. Changes are removed in order, so in this case a
/// change created after it is at the end of the log, and not at a position where outdated changes were
/// removed.
pub(crate) async fn holds(store: &Store, position: &Position) -> Result<bool, StateError> {
    let there = read(store, position.number).await?;
    Ok(there.is_some_and(|there| there.mark == position.mark))
}

/// Returns the highest number of all changes, or 0 if the log is empty.
pub(crate) async fn last(store: &Store) -> Result<u64, StateError> {
    let numbers = FOLDER.list(store, None, parse, |_| true).await?;
    Ok(numbers.last().copied().unwrap_or(0))
}

pub(crate) async fn remove(store: &Store, number: u64) -> Result<(), StateError> {
    folder::remove(store, &key(number)).await
}

/// Removes all changes up to `last` in ascending order, as [`holds`] requires.
pub(crate) async fn sweep(store: &Store, last: u64) -> Result<(), StateError> {
    for number in FOLDER.list(store, None, parse, |number| *number <= last).await? {
        remove(store, number).await?;
    }
    Ok(())
}

/// True if the request may have succeeded despite the error.
fn may_have_been_done(error: &ObjectError) -> bool {
    matches!(error, ObjectError::Store { .. } | ObjectError::Deadline { .. })
}

/// Converts an error after a change that may have been applied.
pub(crate) fn unsure(error: StateError) -> StateError {
    match error {
        StateError::Store(error) => StateError::OutcomeUnknown { error },
        error => error,
    }
}

pub(crate) fn key(number: u64) -> String {
    format!("{}/{number:020}.json", FOLDER.name)
}

fn parse(key: &str) -> Option<u64> {
    let digits = FOLDER.inside(key)?.strip_suffix(".json")?;
    (digits.len() == 20).then(|| digits.parse().ok()).flatten()
}
