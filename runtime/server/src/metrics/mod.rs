//! Metrics of a host and the `/metrics` output.

mod counters;
mod exposition;
mod figures;
mod labels;
mod memory;
mod meter;
mod plain;
mod process;
mod queues;
mod sample;
mod stores;
mod tally;

pub(crate) use counters::Metrics;
pub(crate) use exposition::{Audience, Build, Exposition, HostSnapshot};
pub(crate) use labels::{Outcome, RequestLabels, SplitKind};
pub(crate) use memory::MemorySnapshot;
pub(crate) use process::resident_bytes;
pub(crate) use queues::Queue;
pub use sample::sample_metrics;
pub(crate) use stores::StoreErrors;
