//! Tests of whole parts, most of them against a scripted host.

mod client;
mod dataset;
mod uploads;
