//! Tests of whole parts against a scripted host.

mod client;
mod computing_host;
mod connections;
mod fake_host;
mod hosts;
mod pipeline;
mod planner;
mod profile;
mod real_data;
mod uploads;
mod whole_job;

pub(crate) use whole_job::network;
