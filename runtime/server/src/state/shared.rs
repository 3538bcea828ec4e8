use super::documents::{Documents, Replica};
use super::error::StateError;
use super::facts::ModelFacts;
use super::journal::Journal;
use super::probe::probe;
use super::shelf::UploadStore;
use crate::config::Limits;
use frostline_objects::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Instant;

/// Everything that hosts on one state share; `T` is what they keep of a tenant.
pub(crate) struct SharedState<T> {
    pub(crate) guests: UploadStore<()>,
    pub(crate) models: Arc<UploadStore<ModelFacts>>,
    pub(crate) tenants: Documents<T>,
    pub(crate) journal: Arc<Journal>,
}

impl<T: Serialize + DeserializeOwned + PartialEq + Send + Sync + 'static> SharedState<T> {
    /// Tries the store, and reads what is there.
    pub(crate) async fn open(store: Arc<Store>, limits: &Limits) -> Result<Self, StateError> {
        let started = Instant::now();
        probe(&store).await?;
        let guests = Arc::new(Replica::new("guests"));
        let models = Arc::new(Replica::new("models"));
        let tenants = Arc::new(Replica::new("tenants"));
        let kinds = vec![
            Arc::clone(&guests) as _,
            Arc::clone(&models) as _,
            Arc::clone(&tenants) as _,
        ];
        let journal = Arc::new(Journal::open(Arc::clone(&store), kinds).await?);
        tracing::info!(
            documents = journal.count(),
            seconds = started.elapsed().as_secs_f64(),
            "loaded the host's state"
        );
        let (names, versions) = (limits.names, limits.versions);
        let guests = Documents::new(guests, Arc::clone(&journal));
        let models = Documents::new(models, Arc::clone(&journal));
        Ok(Self {
            guests: UploadStore::new("guests", Arc::clone(&store), guests, names, versions),
            models: Arc::new(UploadStore::new("models", store, models, names, versions)),
            tenants: Documents::new(tenants, Arc::clone(&journal)),
            journal,
        })
    }
}
