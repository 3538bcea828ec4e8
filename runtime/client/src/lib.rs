//! What talks to hosts, for whoever wants something of them: a trainer, an admin, a test, a program in another language. It knows
//! nothing of training.
//!
//! * [`HostClient`]: one host, as a tenant uses it; [`Token`], [`Trust`] and [`Deadlines`] say how it is reached.
//! * [`AdminClient`]: one host, as its admins use it.
//! * [`Hosts`]: several that serve the same data. One that fails is left out until it is back. [`place`] says which is asked for what.
//! * [`Fetcher`]: samples at a split become the rows of a tensor, from any of the hosts and whatever it takes: the central operation.
//!   [`Source`] says what is asked for, and [`Inquiry`] finds that out for who does not know the network;
//!   [`Pass`] goes through many samples, some batches ahead.
//! * [`Listing`], [`LabelTable`], [`Dataset`], [`Samples`]: which objects there are, and how they become a task.
//! * [`Notice`]: what happens on the way; [`ClientError`]: why nothing came.
//!
//! `docs/fetching.md` says how samples travel.

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
    Dataset, DatasetError, Division, Evaluated, LabelTable, LabelsError, Listed, Listing, OneSided, Part,
    Placed, Purpose, SampleFiles, Samples, balanced_order, order,
};
pub use deadlines::Deadlines;
pub use error::ClientError;
pub use extraction::ExtractionStream;
pub use fetch::{
    Ahead, Fetched, Fetcher, Inquiry, InquiryError, Pass, Passed, RowKind, Source, Transfer, Weight,
};
pub use frostline_job::{HostState, LeftOut, Notice, Notices, Task, UploadKind};
pub use hosts::{Hosts, place};
pub use link::Link;
pub use token::Token;
pub use trace::belong_to;
pub use transport::Connector;
pub use trust::Trust;
pub use upload::Uploaded;
