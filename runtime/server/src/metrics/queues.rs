//! Histograms of queue waiting times.

use super::labels::Labels;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use std::time::Duration;
use strum::IntoEnumIterator;

/// Queue for a shared resource.
#[derive(Debug, Clone, Copy, strum::IntoStaticStr, strum::EnumIter)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Queue {
    /// Extractions that wait for a permit.
    Extraction,
    /// Grants that wait for memory. Timeouts are included.
    Memory,
    /// Batches that wait for a lane. A divided batch is counted once per part.
    Lane,
}

/// Histogram of waiting times for each queue.
#[derive(Clone)]
pub(crate) struct QueueWaits(pub(super) Family<Labels<1>, Histogram, fn() -> Histogram>);

/// Creates a histogram with bounds from 5 ms, the decoding of a small photo, to 10 minutes.
pub(super) fn histogram() -> Histogram {
    Histogram::new([
        0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0,
    ])
}

impl Default for QueueWaits {
    fn default() -> Self {
        let family = Family::new_with_constructor(histogram as fn() -> Histogram);
        let waits = Self(family);
        Queue::iter().for_each(|queue| drop(waits.histogram(queue)));
        waits
    }
}

impl QueueWaits {
    fn histogram(&self, queue: Queue) -> Histogram {
        self.0.get_or_create(&[("queue", queue.into())]).clone()
    }

    pub(crate) fn observe(&self, queue: Queue, waited: Duration) {
        self.histogram(queue).observe(waited.as_secs_f64());
    }
}
