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

/// Encodes a metric per row: type, name, unit (if any), help text and value.
macro_rules! show {
    ($encoder:ident: $($kind:ident $name:literal $($unit:ident)?, $help:literal, $value:expr;)*) => {$(
        let metric = $kind::new($value);
        let unit = None$(.or(Some(&Unit::$unit)))?;
        metric.encode($encoder.encode_descriptor($name, $help, unit, metric.metric_type())?)?;
    )*};
}

/// Encodes a metric per row: type, name, unit (if any), help text, and the values by a label.
macro_rules! show_by {
    ($encoder:ident: $($kind:ident $name:literal $($unit:ident)?, $help:literal,
        $label:literal in $values:expr, $value:ident => $number:expr;)*) => {$(
        let unit = None$(.or(Some(&Unit::$unit)))?;
        let kind = $kind::new(0_u64).metric_type();
        let mut family = $encoder.encode_descriptor($name, $help, unit, kind)?;
        for (name, $value) in $values {
            $kind::new($number).encode(family.encode_family(&[($label, AsRef::<str>::as_ref(name))])?)?;
        }
    )*};
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
