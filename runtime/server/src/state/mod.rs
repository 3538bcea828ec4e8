//! What a host remembers: guests and models, as immutable versions in a store of its own; and uploads on their way.

mod partials;
mod shelf;

pub(crate) use partials::{Claim, PartialLimits, Partials, Unclaimed};
pub(crate) use shelf::{Found, Shelf, Stored};

use frostline_objects::ObjectError;
use frostline_wire::{CutInfo, GuestInfo, ModelInfo};
use serde::{Deserialize, Serialize};

/// What a host needs to know of a model without reading it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ModelFacts {
    pub(crate) input: String,
    pub(crate) input_shape: Vec<usize>,
    pub(crate) cuts: Vec<CutInfo>,
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
    pub(crate) fn info(&self, name: &str) -> GuestInfo {
        GuestInfo {
            name: name.to_owned(),
            sha256: self.sha256.clone(),
            bytes: self.bytes,
            uploaded_at: self.uploaded_at,
        }
    }
}

impl Stored<ModelFacts> {
    pub(crate) fn info(&self, name: &str) -> ModelInfo {
        ModelInfo {
            name: name.to_owned(),
            sha256: self.sha256.clone(),
            bytes: self.bytes,
            uploaded_at: self.uploaded_at,
            input: self.facts.input.clone(),
            input_shape: self.facts.input_shape.clone(),
            cuts: self.facts.cuts.clone(),
        }
    }
}
