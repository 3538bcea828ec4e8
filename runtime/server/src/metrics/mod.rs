//! What a host counts, and how it shows that.

mod counters;
mod exposition;
mod labels;
mod memory;
mod meter;
mod tally;

pub(crate) use counters::Metrics;
pub(crate) use exposition::{Exposition, Present};
pub(crate) use labels::{Outcome, RequestLabels, SplitKind};
pub(crate) use memory::MemoryNow;
