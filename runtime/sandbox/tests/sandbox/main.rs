//! Tests of the sandbox with real guests. The host is a fake, except in the conformance test, which uses a
//! real engine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod artifacts;
mod behaviors;
mod child;
mod conformance;
mod fakes;
mod files;
mod honest;
mod hostile;
mod recipes;
mod turns;
mod uploads;
