//! Runs as their folders tell them, and what is made of them.

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
