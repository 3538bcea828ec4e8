use super::documents::{Documents, Replica};
use super::error::StateError;
use super::facts::ModelFacts;
use super::journal::Journal;
use super::orders::{Cancellation, DrainOrder};
use super::probe::probe;
use super::shelf::{ChargedStore, Charges, UploadStore};
use crate::config::Limits;
use frostline_batching::Backoff;
use frostline_objects::Store;
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

/// All data in a shared state. `T` is the tenant record.
pub(crate) struct SharedState<T> {
    pub(crate) guests: UploadStore<()>,
    pub(crate) models: Arc<UploadStore<ModelFacts>>,
    pub(crate) tenants: Documents<T>,
    /// Cancelled jobs.
    pub(crate) jobs: Documents<Cancellation>,
    /// Orders to drain hosts.
    pub(crate) drains: Documents<DrainOrder>,
    pub(crate) journal: Arc<Journal>,
}

impl<T: Serialize + DeserializeOwned + PartialEq + Send + Sync + 'static> SharedState<T> {
    /// Checks the store and loads the state. This is retried while the store is busy or unreachable.
    /// Reading and writing uploads is charged to their owners.
    pub(crate) async fn open(
        store: Arc<Store>,
        limits: &Limits,
        charges: Charges,
    ) -> Result<Self, StateError> {
        while_unavailable(async || Self::open_once(Arc::clone(&store), limits, &charges).await).await
    }

    async fn open_once(store: Arc<Store>, limits: &Limits, charges: &Charges) -> Result<Self, StateError> {
        let started = Instant::now();
        probe(&store).await?;
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
        let journal = Arc::new(Journal::open(Arc::clone(&store), kinds).await?);
        tracing::info!(
            documents = journal.count(),
            seconds = started.elapsed().as_secs_f64(),
            "loaded the host's state"
        );
        let names = limits.names;
        let versions = limits.versions;
        let charges = Arc::clone(charges);
        let store = ChargedStore { store, charges };
        let guests = Documents::new(guests, Arc::clone(&journal));
        let models = Documents::new(models, Arc::clone(&journal));
        Ok(Self {
            guests: UploadStore::new("guests", store.clone(), guests, names, versions),
            models: Arc::new(UploadStore::new("models", store, models, names, versions)),
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
