//! Tests of remote stores, against servers in this process that fail like real ones.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods
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

/// Returns a reference to the version of the object with this etag.
fn version(key: &str, etag: &str) -> SampleRef {
    SampleRef {
        key: key.to_owned(),
        etag: Some(format!("\"{etag}\"")),
    }
}
