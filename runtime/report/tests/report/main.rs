//! Tests of reports for sample and malformed run folders.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod broken;
mod chromium;
mod page;
mod sample;
mod tables;
