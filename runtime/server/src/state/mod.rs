//! The shared state of hosts: tenants, guests and models in a store that several hosts can use (see
//! `docs/state.md`), and the interrupted uploads of this host.

mod backup;
mod daily;
mod day;
mod documents;
mod error;
mod facts;
mod follow;
mod journal;
mod leftovers;
mod log;
mod orders;
mod partials;
mod probe;
mod record;
mod shared;
mod shelf;
mod snapshot;
mod tail;

#[cfg(test)]
pub(crate) mod tests;

pub use backup::{LostVersion, RestoreReport, RestoredTokens, StateReport};
pub(crate) use backup::{back_up, restore, verify};
pub(crate) use daily::DailyFolder;
pub(crate) use day::Day;
pub(crate) use documents::Documents;
pub use error::StateError;
pub(crate) use facts::{ActivationMemory, ModelFacts};
pub(crate) use follow::{compact, follow};
pub(crate) use journal::Journal;
pub(crate) use leftovers::PartialLimits;
pub(crate) use orders::{Cancellation, DrainOrder};
pub(crate) use partials::{Claim, ClaimError, Partials};
pub(crate) use probe::probe;
pub(crate) use record::Unknown;
pub(crate) use shared::SharedState;
#[cfg(test)]
pub(crate) use shelf::uncharged;
pub(crate) use shelf::{
    CheckedUpload, Facts, FindResult, NamedUpload, OwnedUploads, SHARED, StoredVersion, UploadStore,
};
