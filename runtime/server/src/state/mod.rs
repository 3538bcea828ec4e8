//! What hosts remember: guests and models, as immutable versions in a store that several hosts may share (`docs/state.md`); and one
//! host's uploads on their way.

mod changes;
mod documents;
mod follow;
mod leftovers;
mod partials;
mod shelf;

pub(crate) use documents::Documents;
pub(crate) use follow::follow;
pub(crate) use leftovers::PartialLimits;
pub(crate) use partials::{Claim, Partials, Unclaimed};
pub(crate) use shelf::{Facts, Found, Named, Owned, SHARED, Shelf, Stored};

use crate::Limits;
use crate::tenants::TenantRecord;
use changes::Changes;
use documents::Followed;
use frostline_objects::{ObjectError, Store};
use frostline_wire::{CutInfo, GuestInfo, ModelInfo};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
    changes: Arc<Changes>,
    followed: Vec<Arc<dyn Followed>>,
}

impl SharedState {
    /// Reads what is there.
    pub(crate) async fn open(store: Arc<Store>, limits: &Limits) -> Result<Self, StateError> {
        let changes = Arc::new(Changes::open(Arc::clone(&store)).await?);
        let of = |kind| (Arc::clone(&store), Arc::clone(&changes), kind);
        let guests = Arc::new(Documents::open(of("guests")).await?);
        let models = Arc::new(Documents::open(of("models")).await?);
        let tenants: Arc<Documents<TenantRecord>> = Arc::new(Documents::open(of("tenants")).await?);
        let (names, versions) = (limits.names, limits.versions);
        Ok(Self {
            changes,
            followed: vec![
                Arc::clone(&guests) as _,
                Arc::clone(&models) as _,
                Arc::clone(&tenants) as _,
            ],
            tenants,
            guests: Arc::new(Shelf::new("guests", Arc::clone(&store), guests, names, versions)),
            models: Arc::new(Shelf::new("models", store, models, names, versions)),
        })
    }
}

/// State that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The store failed.
    #[error("the host's state: {0}")]
    Store(#[from] ObjectError),
    /// A record nobody can read.
    #[error("the host's state has a broken record {key}: {detail}; delete it, or upload again")]
    Record {
        /// Its key.
        key: String,
        /// What is wrong.
        detail: String,
    },
    /// Others keep writing the same name.
    #[error("{kind} {name} is being uploaded by others at the same time; try again")]
    Contended {
        /// `guests` or `models`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Bytes that no version stands for any more.
    #[error("the host's state has no {kind} with the SHA-256 {sha256} any more; upload it again")]
    Gone {
        /// `guests` or `models`.
        kind: &'static str,
        /// The hash.
        sha256: String,
    },
    /// The system gave no random bytes.
    #[error("no random bytes for an upload's name: {detail}")]
    Random {
        /// The system's text.
        detail: String,
    },
    /// A name that an admin refuses.
    #[error("{name} of the {kind} is disabled on this host")]
    Disabled {
        /// `guests` or `models`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// More names than allowed.
    #[error("this host keeps at most {limit} {kind}; delete one first")]
    TooMany {
        /// `guests` or `models`.
        kind: &'static str,
        /// The limit.
        limit: usize,
    },
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
