//! Rows of samples at the freeze cut, for the trainer, `frostline extract` and the Python package.
//!
//! * [`RowSource`] gets the rows of a [`BatchRequest`]: cached rows from this machine's disk, and the others from
//!   hosts.
//! * [`BatchRows`] joins cached rows with fetched ones, which the caller's layers compute from the split to the freeze
//!   cut.
//! * [`RowCache`] finds and stores the rows of a freeze cut by sample and view.
//! * [`Prefetch`] fetches batches ahead in order, with a limit for their memory.
//!
//! This crate does not execute networks.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads"))]

mod batch;
mod cache;
mod error;
mod prefetch;
mod source;

pub use batch::{BatchRows, PendingRows};
pub use cache::RowCache;
pub use error::RowsError;
pub use prefetch::{Place, Prefetch, PrefetchLimits, Requests, ReservedMemory, SampleBatch};
pub use source::{BatchRequest, FetchedBatch, RowSource};
