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
mod server;
mod shards;
mod web;
