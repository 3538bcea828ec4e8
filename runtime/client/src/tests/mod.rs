//! Integration tests, mostly against a scripted host.

mod checksums;
mod client;
mod connections;
mod dataset;
pub(crate) mod fetching;
mod hostile;
mod hosts;
mod members;
mod outages;
mod parts;
mod restarts;
mod tensors;
mod tokens;
mod uploads;
