//! Metrics of a host and the `/metrics` output.

/// Registers a metric per row: name, unit (if any), help text and metric.
macro_rules! register {
    ($registry:ident: $($name:literal $($unit:ident)?, $help:expr, $metric:expr;)*) => {
        $(register!(@ $registry, $name, $help, $metric $(, $unit)?);)*
    };
    (@ $registry:ident, $name:literal, $help:expr, $metric:expr) => {
        $registry.register($name, $help, $metric.clone())
    };
    (@ $registry:ident, $name:literal, $help:expr, $metric:expr, $unit:ident) => {
        $registry.register_with_unit($name, $help, prometheus_client::registry::Unit::$unit, $metric.clone())
    };
}

mod counters;
mod exposition;
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
