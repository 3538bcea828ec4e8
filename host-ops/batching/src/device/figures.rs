//! Metrics of a device.

use super::Device;
use super::needs::Missed;
use super::own::OwnRate;
use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

/// Number of recent predictions in the statistics.
const KEPT: usize = 1024;

/// Accuracy of memory predictions.
#[derive(Debug, Clone, Default)]
pub struct Predictions {
    errors: VecDeque<f64>,
    /// Number of batches that exceeded the reservation, ran out of memory, or ended in an abort that was
    /// attributed to memory.
    pub misses: u64,
}

impl Predictions {
    pub(super) fn note(&mut self, missed: Missed) {
        self.misses += u64::from(missed.miss);
        if let Some(error) = missed.error {
            if self.errors.len() == KEPT {
                self.errors.pop_front();
            }
            self.errors.push_back(error);
        }
    }

    /// Returns the 95th percentile of the errors in the latest 1,024 predictions, relative to the measured bytes, or
    /// `None` before the first prediction from measurements.
    pub fn error_95(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.errors.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
            .get((sorted.len() * 95).div_ceil(100).saturating_sub(1))
            .copied()
    }
}

impl<S: Clone + Eq + Hash> Device<S> {
    /// Number of work items, waiting or executing.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// True if no work item waits or executes.
    pub fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }

    /// Device time per tenant, for up to 1,024 tenants.
    pub fn used(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.device_time.iter().map(|(tenant, time)| (&**tenant, *time))
    }

    /// Number of waiting rows per tenant, for tenants with waiting rows.
    pub fn waiting(&self) -> impl Iterator<Item = (&str, usize)> {
        self.queue
            .rows()
            .into_iter()
            .map(|(tenant, rows)| (&**tenant, rows))
    }

    /// Accuracy of memory predictions.
    pub fn predictions(&self) -> &Predictions {
        &self.predictions
    }

    /// Rates of the stages that executed rows of `tenant`, measured with these rows.
    pub fn rates_of(&self, tenant: &str) -> impl Iterator<Item = (&S, OwnRate)> {
        self.own_rates.rates_of(tenant)
    }
}
