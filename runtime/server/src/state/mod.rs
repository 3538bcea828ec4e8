//! What hosts remember: guests and models, as immutable versions in a store that several hosts may share (`docs/state.md`); and one
//! host's uploads on their way.

mod documents;
mod earlier;
mod error;
mod follow;
mod journal;
mod leftovers;
mod log;
mod partials;
mod probe;
mod shelf;
mod snapshot;

#[cfg(test)]
mod s3;
#[cfg(test)]
mod tests;

pub(crate) use documents::Documents;
pub use error::StateError;
pub(crate) use follow::{compact, follow};
pub(crate) use leftovers::PartialLimits;
pub(crate) use partials::{Claim, Partials, Unclaimed};
pub(crate) use shelf::{Facts, Found, Named, Owned, SHARED, Shelf, Stored};

use crate::Limits;
use crate::tenants::TenantRecord;
use documents::Known;
use frostline_objects::Store;
use frostline_wire::{CutInfo, GuestInfo, ModelInfo};
use journal::Journal;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// What a host needs to know of a model without reading it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelFacts {
    pub(crate) input: String,
    pub(crate) input_shape: Vec<usize>,
    pub(crate) cuts: Vec<CutInfo>,
}

/// Everything that hosts on one state share.
pub(crate) struct SharedState {
    pub(crate) guests: Arc<Shelf<()>>,
    pub(crate) models: Arc<Shelf<ModelFacts>>,
    pub(crate) tenants: Arc<Documents<TenantRecord>>,
    journal: Arc<Journal>,
}

impl SharedState {
    /// Tries the store, and reads what is there.
    pub(crate) async fn open(store: Arc<Store>, limits: &Limits) -> Result<Self, StateError> {
        let started = Instant::now();
        probe::probe(&store).await?;
        let guests = Arc::new(Known::new("guests"));
        let models = Arc::new(Known::new("models"));
        let tenants = Arc::new(Known::new("tenants"));
        let kinds = vec![
            Arc::clone(&guests) as _,
            Arc::clone(&models) as _,
            Arc::clone(&tenants) as _,
        ];
        let journal = Arc::new(Journal::open(Arc::clone(&store), kinds).await?);
        tracing::info!(
            documents = journal.count(),
            seconds = started.elapsed().as_secs_f64(),
            "read the host's state"
        );
        let (names, versions) = (limits.names, limits.versions);
        let guests = Documents::new(guests, Arc::clone(&journal));
        let models = Documents::new(models, Arc::clone(&journal));
        Ok(Self {
            guests: Arc::new(Shelf::new("guests", Arc::clone(&store), guests, names, versions)),
            models: Arc::new(Shelf::new("models", store, models, names, versions)),
            tenants: Arc::new(Documents::new(tenants, Arc::clone(&journal))),
            journal,
        })
    }
}

/// What nothing else in the state is called.
fn unique() -> Result<String, StateError> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| StateError::Random {
        detail: error.to_string(),
    })?;
    Ok(hex::encode(random))
}

impl Stored<()> {
    pub(crate) fn info(&self, name: &str, disabled: bool) -> GuestInfo {
        GuestInfo {
            name: name.to_owned(),
            sha256: self.sha256.clone(),
            bytes: self.bytes,
            uploaded_at: self.uploaded_at,
            disabled,
        }
    }
}

impl Stored<ModelFacts> {
    pub(crate) fn info(&self, name: &str, shared: bool) -> ModelInfo {
        ModelInfo {
            name: name.to_owned(),
            sha256: self.sha256.clone(),
            bytes: self.bytes,
            uploaded_at: self.uploaded_at,
            input: self.facts.input.clone(),
            input_shape: self.facts.input_shape.clone(),
            cuts: self.facts.cuts.clone(),
            shared,
        }
    }
}
