//! Integration tests, usually with a scripted host.

mod augmented;
mod computing_host;
mod evaluation;
mod failed_job;
mod features;
mod full_disk;
mod hosts;
mod int8;
mod joint;
mod labels;
mod optimizations;
mod pipeline;
mod predicting;
mod profile;
mod profile_missing;
mod real_data;
mod recipes;
mod results;
mod resuming;
mod runs;
mod tuned;
mod unfreezing;
mod whole_job;
mod whole_network;

pub(crate) use whole_job::{network, wrong_when_optimized};
