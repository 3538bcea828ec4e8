//! Checks that a store can hold a shared state: it must refuse to create an object that already exists.
//!
//! The check creates an object twice in sequence. This does not verify that only a single create can succeed
//! if two hosts try concurrently; `docs/state.md` and the page on stores list which stores guarantee this.

use crate::error::StateError;
use crate::record::unique_id;
use bytes::Bytes;
use frostline_objects::{ObjectError, Store};

/// Content of the object. An empty one could be written to a store that is full.
const CONTENT: Bytes = Bytes::from_static(b"first");

/// Checks that the store of a state does not replace existing objects, by creating an object twice and removing it.
///
/// # Errors
/// Returns [`StateError::Replaces`] if the store overwrites the object, [`StateError::CreatesNothing`] if it
/// does not support conditional creates, or the error of the store.
pub async fn probe(store: &Store) -> Result<(), StateError> {
    let key = format!("probes/{}", unique_id()?);
    let probed = create_twice(store, &key).await;
    if let Err(error) = store.delete(&key).await
        && !error.is_not_found()
    {
        tracing::warn!(key, %error, "cannot remove the probe object from the state store");
    }
    probed
}

async fn create_twice(store: &Store, key: &str) -> Result<(), StateError> {
    match store.put_new(key, CONTENT).await {
        Ok(()) => {}
        // The store's client retried the request because a response was lost.
        Err(error) if error.is_already_there() => {}
        Err(error) if error.is_temporary() => return Err(error.into()),
        Err(error @ (ObjectError::Store { .. } | ObjectError::Unsupported { .. })) => {
            return Err(unconditional(store, key, error).await);
        }
        Err(error) => return Err(error.into()),
    }
    match store.put_new(key, Bytes::from_static(b"second")).await {
        Err(error) if error.is_already_there() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Err(StateError::Replaces {
            root: store.root().to_owned(),
        }),
    }
}

/// Determines the reason for a failed create. If the same object can be written without the condition, the
/// store does not support conditional creates.
async fn unconditional(store: &Store, key: &str, error: ObjectError) -> StateError {
    match (store.put(key, CONTENT).await, &error) {
        (Ok(()), ObjectError::Store { reason, .. } | ObjectError::Unsupported { reason, .. }) => {
            StateError::CreatesNothing {
                root: store.root().to_owned(),
                reason: reason.clone(),
            }
        }
        _ => error.into(),
    }
}
