//! The state that hosts share: documents, uploads, usage and audit on a store that creates objects atomically.
//!
//! * [`SharedState`]: tenants, guests, models and orders of admins, as [`Documents`] and [`UploadStore`]s. Every change
//!   is an object in a log, which [`Journal`] reads and compacts.
//! * [`Accounts`] and [`Audit`]: daily records of each host process.
//! * [`HostRecord`] and [`Clock`]: the hosts of a state, and the comparison of their clocks.
//! * [`back_up`], [`verify`] and [`restore`].
//!
//! A host can be killed at any time: an object is written once and never replaced, and an error tells if a change may have
//! been applied ([`StateError::OutcomeUnknown`]). All times are seconds since 1970, and all sizes are bytes.
//! `docs/state.md` describes the layout and the guarantees.

mod audit;
mod backup;
mod clock;
mod daily;
mod day;
mod documents;
mod error;
mod facts;
mod folder;
mod follow;
mod hosts;
mod journal;
mod log;
mod orders;
mod probe;
mod record;
mod shared;
mod shelf;
mod snapshot;
mod tail;
#[cfg(test)]
mod tests;
mod usage;

pub use audit::Audit;
pub use backup::{LostVersion, RestoreReport, RestoredTokens, StateReport, back_up, restore, verify};
pub use clock::{Clock, ClockCheck, LocalClock};
pub use day::Day;
pub use documents::Documents;
pub use error::{AuditError, StateError};
pub use facts::{ActivationMemory, ModelFacts};
pub use hosts::{HostKey, HostRecord};
pub use journal::Journal;
pub use orders::{Cancellation, DrainOrder};
pub use probe::probe;
pub use record::{Unknown, unique_id};
pub use shared::SharedState;
pub use shelf::{
    CheckedUpload, Facts, FindResult, NamedUpload, OwnedUploads, SHARED, StoredVersion, UploadLimits,
    UploadStore,
};
pub use usage::Accounts;
