//! Real guests in the sandbox, with a host that is faked behind its traits; and in the conformance test with a real
//! engine.
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
mod turns;
mod uploads;
mod recipes;
