//! Feature cache: activations at a job's freeze cut, stored on this machine's disk so that the frozen layers
//! are computed only once per sample.
//!
//! * [`Cache`]: a folder of stores with a size limit and least-recently-used eviction.
//! * [`Provenance`]: all inputs that determine the values, which lets programs find each other's features.
//! * [`Store`]: rows of a [`Subject`] by [`RowKey`], for any number of jobs.
//!
//! A row is valid only if its checksum matches. If files are damaged, a store returns the original row or
//! none. This crate is independent of training, hosts and networks. `docs/features.md` describes the files.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads"))]

mod cache;
mod contents;
mod error;
mod index;
mod layout;
mod provenance;
mod records;
mod row;
mod rows;
mod space;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use cache::{Cache, StoreInfo, Subject, folder_of_user};
pub use error::FeatureError;
pub use provenance::{Exactly, Provenance, Rounding};
pub use row::{Content, Form, Row, RowKey, RowKeys};
pub use store::{FoundRows, Store};
pub use writer::Stopped;
