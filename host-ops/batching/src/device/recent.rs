use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of tenants with recorded device time. Tenants with the smallest time are dropped first.
pub(super) const TENANTS: usize = 1024;

/// Number of measurements in the median. Lanes share the cores with decoders and connections, which can make
/// an execution of ResNet18 a third longer than the next one. In a replay, the median of 5 put 54 % of all
/// rows into batches that need a tenth more time per row, the median of 15 only 7 %.
const KEPT: usize = 15;

/// Latest values of repeated measurements.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    values: VecDeque<f64>,
}

/// Recent activity of a tenant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Activity {
    /// End of the last batch or preparation.
    pub(super) last: Duration,
    /// Duration of the last batch; zero if unknown.
    pub(super) took: Duration,
}

impl Recent {
    pub(super) fn push(&mut self, value: f64) {
        if self.values.len() == KEPT {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the median. With an even number of values, this is the lower middle value.
    pub(super) fn median(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.values.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len().saturating_sub(1) / 2).copied()
    }
}
