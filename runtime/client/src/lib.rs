//! Client library for Frostline hosts, used by the trainer, admin tools, tests and the Python package. This
//! crate does not depend on training code.
//!
//! * [`HostClient`] talks to one host as a tenant. [`Token`], [`Trust`] and [`Deadlines`] configure the
//!   connection.
//! * [`AdminClient`] talks to one host as an admin.
//! * [`Hosts`] combines hosts that serve the same data. Failing hosts are excluded until they recover.
//!   [`place`] maps objects to hosts.
//! * [`Fetcher`], the central type, turns samples at a split into the rows of a tensor, with retries and
//!   failover. [`Source`] describes the request, [`Inquiry`] builds a `Source` for callers that do not know
//!   the network.
//! * [`Listing`] holds the objects under a data root. [`LabelTable`], [`Dataset`] and [`Samples`] turn a
//!   listing into a task.
//! * [`Notice`] reports events such as retries. [`ClientError`] is the error type of all calls.
//!
//! See `docs/fetching.md` for the path of a sample.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests start threads"))]

mod address;
mod admin;
mod blocking;
mod client;
mod content_name;
mod data;
mod deadlines;
mod error;
mod extraction;
mod fetch;
mod hosts;
mod link;
mod meter;
mod pages;
mod retry;
#[cfg(test)]
mod tests;
mod token;
mod trace;
mod transport;
mod trust;
mod upload;

pub use admin::AdminClient;
pub use client::HostClient;
pub use content_name::content_name;
pub use data::{
    AssumedNames, ClassWarning, Dataset, DatasetError, Division, Evaluated, ExpectedLabels, LabelTable,
    LabelsError, Listed, Listing, Part, Placed, Purpose, SampleFiles, Samples, Subfolders, balanced_order,
    is_same_name, order,
};
pub use deadlines::Deadlines;
pub use error::ClientError;
pub use extraction::ExtractionStream;
pub use fetch::{Fetched, Fetcher, Inquiry, InquiryError, RowKind, Source, Transfer, Weight};
pub use frostline_job::{HostState, Notice, Notices, SkippedObjects, Task, UploadKind};
pub use hosts::{Hosts, place};
pub use token::Token;
pub use trace::set_trace_parent;
pub use transport::Connector;
pub use trust::Trust;
pub use upload::Uploaded;
