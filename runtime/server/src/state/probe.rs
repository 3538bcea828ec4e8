//! Whether a store can hold state that hosts share: it must create an object only where none is.
//!
//! That it refuses a second object one after the other says that it knows the condition, not that of two hosts at the very same moment only
//! one is told that it was first; `docs/state.md` and the stores' page say which stores promise that.

use super::error::StateError;
use crate::unique::unique_id;
use bytes::Bytes;
use frostline_objects::{ObjectError, Store};

/// Creates an object twice.
///
/// # Errors
/// [`StateError::Replaces`], [`StateError::CreatesNothing`], and the store's failures.
pub(crate) async fn probe(store: &Store) -> Result<(), StateError> {
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
    match store.put_new(key, Bytes::from_static(b"first")).await {
        Ok(()) => {}
        // The store's client tried again after an answer was lost.
        Err(error) if error.is_already_there() => {}
        Err(error) if error.is_passing() => return Err(error.into()),
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

/// Why a create failed: if the same object can be written without a condition, by the condition.
async fn unconditional(store: &Store, key: &str, error: ObjectError) -> StateError {
    match (store.put(key, Bytes::new()).await, &error) {
        (Ok(()), ObjectError::Store { reason, .. } | ObjectError::Unsupported { reason, .. }) => {
            StateError::CreatesNothing {
                root: store.root().to_owned(),
                reason: reason.clone(),
            }
        }
        _ => error.into(),
    }
}
