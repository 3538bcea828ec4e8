use crate::documents::{Documents, Replica};
use crate::error::StateError;
use crate::facts::ModelFacts;
use crate::journal::Journal;
use crate::orders::{Cancellation, DrainOrder};
use crate::probe::probe;
use crate::shelf::{ChargedStore, UploadLimits, UploadStore};
use frostline_batching::Charge;
use frostline_objects::Store;
use frostline_primitives::Backoff;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum wait for the store at startup. A store can restart within this time, and it is less than the five
/// minutes that the chart allows for the start of a host.
const STARTING: Duration = Duration::from_secs(120);

/// Bounds of the backoff between attempts.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(10);

/// The documents and uploads of a state. `T` is the tenant record.
pub struct SharedState<T> {
    /// Guests of all tenants.
    pub guests: UploadStore<()>,
    /// Models of all tenants, and shared models.
    pub models: Arc<UploadStore<ModelFacts>>,
    /// Tenants by name.
    pub tenants: Documents<T>,
    /// Cancelled jobs by `TENANT/ID`.
    pub jobs: Documents<Cancellation>,
    /// Orders to drain hosts, by the name of the host.
    pub drains: Documents<DrainOrder>,
    /// Reads the changes of other hosts.
    pub journal: Arc<Journal>,
}

impl<T: Serialize + DeserializeOwned + PartialEq + Send + Sync + 'static> SharedState<T> {
    /// Checks the store and loads the state. This is retried for two minutes while the store is busy or unreachable.
    /// `charge` returns the account of an owner for the CPU time of reading, hashing and writing its uploads.
    ///
    /// # Errors
    /// Returns [`StateError::Replaces`] or [`StateError::CreatesNothing`] if the store does not create objects atomically,
    /// and other errors if the state cannot be read.
    pub async fn open(
        store: Arc<Store>,
        limits: UploadLimits,
        charge: impl Fn(&str) -> Charge + Send + Sync + 'static,
    ) -> Result<Self, StateError> {
        let charges = Arc::new(charge);
        let store = ChargedStore { store, charges };
        while_unavailable(async || Self::open_once(store.clone(), limits).await).await
    }

    async fn open_once(store: ChargedStore, limits: UploadLimits) -> Result<Self, StateError> {
        let started = Instant::now();
        probe(&store.store).await?;
        let guests = Arc::new(Replica::new("guests"));
        let models = Arc::new(Replica::new("models"));
        let tenants = Arc::new(Replica::new("tenants"));
        let jobs = Arc::new(Replica::new("jobs"));
        let drains = Arc::new(Replica::new("drains"));
        let kinds = vec![
            Arc::clone(&guests) as _,
            Arc::clone(&models) as _,
            Arc::clone(&tenants) as _,
            Arc::clone(&jobs) as _,
            Arc::clone(&drains) as _,
        ];
        let journal = Arc::new(Journal::open(Arc::clone(&store.store), kinds).await?);
        tracing::info!(
            documents = journal.count(),
            seconds = started.elapsed().as_secs_f64(),
            "loaded the host's state"
        );
        let guests = Documents::new(guests, Arc::clone(&journal));
        let models = Documents::new(models, Arc::clone(&journal));
        Ok(Self {
            guests: UploadStore::new("guests", store.clone(), guests, limits),
            models: Arc::new(UploadStore::new("models", store, models, limits)),
            tenants: Documents::new(tenants, Arc::clone(&journal)),
            jobs: Documents::new(jobs, Arc::clone(&journal)),
            drains: Documents::new(drains, Arc::clone(&journal)),
            journal,
        })
    }
}

/// Calls `open` until the store is available or [`STARTING`] has passed.
async fn while_unavailable<T>(mut open: impl AsyncFnMut() -> Result<T, StateError>) -> Result<T, StateError> {
    let until = tokio::time::Instant::now() + STARTING;
    let mut backoff = Backoff::new(SHORTEST, LONGEST);
    loop {
        let error = match open().await {
            Err(StateError::Store(error)) if error.is_temporary() => error,
            opened => return opened,
        };
        let wait = backoff.wait();
        if tokio::time::Instant::now() + wait > until {
            return Err(error.into());
        }
        tracing::warn!(%error, retry_seconds = wait.as_secs_f64(), "the host's state is not available; retrying");
        tokio::time::sleep(wait).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_objects::ObjectError;

    fn unreachable(reason: &str) -> StateError {
        let reason = reason.to_owned();
        let error = ObjectError::Unreachable {
            root: "s3://b".to_owned(),
            reason,
            advice: "",
        };
        error.into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_stays_away_is_given_up_in_time() {
        let started = tokio::time::Instant::now();
        let mut tries = 0;
        let opened = while_unavailable(async || {
            tries += 1;
            Err::<(), _>(unreachable("refused"))
        });
        assert!(matches!(opened.await, Err(StateError::Store(_))));
        assert!(tries > 5 && started.elapsed() <= STARTING);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waiting_does_not_change_is_told_at_once() {
        let started = tokio::time::Instant::now();
        let replaces = || StateError::Replaces {
            root: "s3://b".to_owned(),
        };
        let opened = while_unavailable(async || Err::<(), _>(replaces())).await;
        assert!(matches!(opened, Err(StateError::Replaces { .. })));
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
