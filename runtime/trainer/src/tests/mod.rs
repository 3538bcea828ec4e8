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
mod whole_job;
