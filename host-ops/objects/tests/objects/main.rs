//! Stores across a network, against servers of this process that fail as real ones do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod clouds;
mod contents;
mod faults;
mod keys;
mod listings;
mod needs_stores;
mod own;
mod server;
mod shards;
mod web;

use frostline_tensor::SampleRef;

/// The object in a version, as an etag names it.
fn version(key: &str, etag: &str) -> SampleRef {
    SampleRef {
        key: key.to_owned(),
        etag: Some(format!("\"{etag}\"")),
    }
}
