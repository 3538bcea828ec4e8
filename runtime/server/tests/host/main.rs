//! Tests of a complete host in this process, with HTTP, state on disk, the stock guest and a small network.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods
)]

mod accounting;
mod augmentation;
mod bucket;
mod client;
mod connections;
mod descriptions;
mod dismissal;
mod extraction;
mod fixtures;
mod fleet;
mod guest_logs;
mod guests;
mod host_log;
mod jobs;
mod lifecycle;
mod log;
mod memory;
mod metrics;
mod neighbors;
mod openapi;
mod profiles;
mod reloading;
mod resuming;
mod roots;
mod support;
mod tenants;
mod tensors;
mod uploads;
