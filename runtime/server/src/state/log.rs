//! All changes of the state, one after another: `log/<20-digit number>.json`, numbered without a gap. A change is made by creating the next
//! number: of two hosts one is second and sees it. To look for news is to ask for one object that is not there, the cheapest thing a
//! store can be asked.

use super::error::StateError;
use bytes::Bytes;
use frostline_objects::{ObjectError, Store};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// The folder they lie in.
const FOLDER: &str = "log";

/// Keys asked for at a time: what S3 gives at once.
const PAGE: usize = 1000;

/// Tries to create a change while it is not known whether the last try did. Each is repeated by the store's client already.
const TRIES: usize = 2;

/// A change. One without a kind changes nothing. Its fields mean the same in every format, which is that of its content.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Change {
    /// The format of the content; builds that knew none wrote none.
    pub(super) format: u32,
    /// What no other change has: by it a host knows its own.
    pub(super) mark: String,
    /// The kind of document.
    pub(super) kind: String,
    /// Its name.
    pub(super) name: String,
    /// What it is from now on; nothing when it was deleted.
    pub(super) content: Option<Box<RawValue>>,
}

/// A position in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// The number of the last change that is known.
    pub(super) number: u64,
    /// Its mark.
    pub(super) mark: String,
}

pub(super) struct Log {
    store: Arc<Store>,
}

impl Log {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// A change, unless it was not made yet, or was swept.
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

    /// Makes `change` the one of that number; `false` when another one is.
    ///
    /// A create whose answer was lost may have been done all the same, and the store's client, which tries again, then finds its own
    /// object: so what is there is looked at.
    ///
    /// # Errors
    /// [`StateError::Unsure`] when that cannot be found out.
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
                        // Something is on its way there, which may be what was sent before.
                        (None, Some(error)) => Err(StateError::Unsure { error }),
                        (None, None) => Ok(false),
                    };
                }
                Err(error) if may_have_been_done(&error) => lost = Some(error),
                Err(error) if lost.is_none() => return Err(error.into()),
                Err(error) => return Err(StateError::Unsure { error }),
            }
        }
        lost.map_or(Ok(false), |error| Err(StateError::Unsure { error }))
    }

    /// Whether the change of that position is still there. As changes are removed in their order, the one created after it was then
    /// created at the log's end, and not where the others had been long ago.
    pub(super) async fn holds(&self, position: &Position) -> Result<bool, StateError> {
        let there = self.read(position.number).await?;
        Ok(there.is_some_and(|there| there.mark == position.mark))
    }

    /// The greatest number of all changes; 0 where there is none.
    pub(super) async fn last(&self) -> Result<u64, StateError> {
        let (mut last, mut after) = (0, Some(FOLDER.to_owned()));
        while let Some(from) = after {
            let page = self.store.list(Some(&from), PAGE).await?;
            let numbers = page.objects.iter().map_while(|object| parse(&object.sample.key));
            let before = last;
            last = numbers.max().unwrap_or(last);
            after = page.next.filter(|_| last > before);
        }
        Ok(last)
    }

    /// Removes one change.
    pub(super) async fn remove(&self, number: u64) -> Result<(), StateError> {
        match self.store.delete(&key(number)).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Removes all changes up to `last`, one after another in their order: see [`holds`](Self::holds).
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

/// Whether the store may have done what it was asked for in spite of the error.
fn may_have_been_done(error: &ObjectError) -> bool {
    matches!(error, ObjectError::Store { .. } | ObjectError::Deadline { .. })
}

fn unsure(error: StateError) -> StateError {
    match error {
        StateError::Store(error) => StateError::Unsure { error },
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
