//! Whole-system tests: the `frostline` binary, run as a user runs it, on the bundled photos and network.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod admin_host;
mod backbones;
mod bad_input;
mod bad_models;
mod cases;
mod clocks;
mod compiler;
mod fault_proxy;
mod features;
mod guests;
mod harness;
mod hints;
mod hosts;
mod int8;
mod joint;
mod lanes;
mod logs;
mod needs_stores;
mod operating;
mod operators_day;
mod optimizations;
mod pages;
mod precision;
mod raw;
mod real_data;
mod running_job;
mod s3;
mod service;
mod several_hosts;
mod shards;
mod sharing;
mod state;
mod sweep;
mod tenants;
mod text;
mod tls;
mod traces;
mod training;
