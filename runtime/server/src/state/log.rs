//! The change log, stored as `log/<20-digit number>.json` and numbered without gaps.
//!
//! A change is made by creating the object with the next number. If two hosts try this at the same time, one
//! of them fails and can tell. Checking for new changes means requesting an object that usually does not
//! exist, which is the cheapest request of a store.

use super::error::StateError;
use bytes::Bytes;
use frostline_objects::{ObjectError, Store};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

const FOLDER: &str = "log";

/// Number of keys per listing request, the maximum of S3.
const PAGE: usize = 1000;

/// Attempts to create a change if the outcome of the first one is unknown. The store's client already retries
/// each of them.
const TRIES: usize = 2;

/// An entry of the log. An entry with an empty kind has no effect. All fields except `content` have the same
/// meaning in every format.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Change {
    /// Format of the content, or 0 if written by a version without formats.
    pub(super) format: u32,
    /// Random mark used by a host to recognize the changes it created.
    pub(super) mark: String,
    /// `guests`, `models` or `tenants`. Empty for an entry without effect.
    pub(super) kind: String,
    /// Name of the document.
    pub(super) name: String,
    /// The new content, or `None` if the document was deleted.
    pub(super) content: Option<Box<RawValue>>,
}

/// A position in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Number of the last known change.
    pub(super) number: u64,
    /// Mark of this change.
    pub(super) mark: String,
}

pub(super) struct Log {
    store: Arc<Store>,
}

impl Log {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// Reads a change. Returns `None` if it does not exist yet or was already removed.
    pub(super) async fn read(&self, number: u64) -> Result<Option<Change>, StateError> {
        let key = key(number);
        match self.store.read(&key).await {
            Ok(bytes) => {
                let change = serde_json::from_slice(&bytes);
                change.map(Some).map_err(|error| StateError::broken(&key, error))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the change with this number; returns false if another change has it.
    ///
    /// If a response is lost, the create may have succeeded, and a retry by the store's client then finds the
    /// existing object. The mark is used to check whether this is the same change.
    ///
    /// # Errors
    /// Returns [`StateError::OutcomeUnknown`] if it is not known whether the change was created.
    pub(super) async fn create(&self, number: u64, change: &Change) -> Result<bool, StateError> {
        let key = key(number);
        let json = serde_json::to_vec(change).map_err(|error| StateError::broken(&key, error))?;
        let json = Bytes::from(json);
        let mut lost = None;
        for _ in 0..TRIES {
            match self.store.put_new(&key, json.clone()).await {
                Ok(()) => return Ok(true),
                Err(error) if error.is_already_there() => {
                    return match (self.read(number).await.map_err(unsure)?, lost) {
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
    pub(super) async fn holds(&self, position: &Position) -> Result<bool, StateError> {
        let there = self.read(position.number).await?;
        Ok(there.is_some_and(|there| there.mark == position.mark))
    }

    /// Returns the highest number of all changes, or 0 if the log is empty.
    pub(super) async fn last(&self) -> Result<u64, StateError> {
        let mut last = 0;
        let mut after = Some(FOLDER.to_owned());
        while let Some(from) = after {
            let page = self.store.list(Some(&from), PAGE).await?;
            let numbers = page.objects.iter().map_while(|object| parse(&object.sample.key));
            let before = last;
            last = numbers.max().unwrap_or(last);
            after = page.next.filter(|_| last > before);
        }
        Ok(last)
    }

    pub(super) async fn remove(&self, number: u64) -> Result<(), StateError> {
        match self.store.delete(&key(number)).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Removes all changes up to `last` in ascending order, as [`holds`](Self::holds) requires.
    pub(super) async fn sweep(&self, last: u64) -> Result<(), StateError> {
        let mut after = Some(FOLDER.to_owned());
        while let Some(from) = after {
            let page = self.store.list(Some(&from), PAGE).await?;
            for object in &page.objects {
                match parse(&object.sample.key).filter(|number| *number <= last) {
                    Some(number) => self.remove(number).await?,
                    None => return Ok(()),
                }
            }
            after = page.next;
        }
        Ok(())
    }
}

/// True if the request may have succeeded despite the error.
fn may_have_been_done(error: &ObjectError) -> bool {
    matches!(error, ObjectError::Store { .. } | ObjectError::Deadline { .. })
}

/// Converts an error after a change that may have been applied.
pub(super) fn unsure(error: StateError) -> StateError {
    match error {
        StateError::Store(error) => StateError::OutcomeUnknown { error },
        error => error,
    }
}

pub(super) fn key(number: u64) -> String {
    format!("{FOLDER}/{number:020}.json")
}

fn parse(key: &str) -> Option<u64> {
    let digits = key
        .strip_prefix(FOLDER)?
        .strip_prefix('/')?
        .strip_suffix(".json")?;
    (digits.len() == 20).then(|| digits.parse().ok()).flatten()
}
