//! Recent measurements, robust against a single slow batch.

use super::observed::Iteration;
use std::collections::VecDeque;

/// Sliding window of values.
#[derive(Debug, Default)]
pub(super) struct SlidingWindow<T> {
    values: VecDeque<T>,
    limit: usize,
}

impl<T> SlidingWindow<T> {
    fn push(&mut self, value: T) {
        if self.values.len() >= self.limit {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// Removes all values and changes the size to `limit`.
    pub(super) fn clear(&mut self, limit: usize) {
        self.forget();
        self.limit = limit.max(1);
    }

    /// Removes all values because they are no longer valid.
    pub(super) fn forget(&mut self) {
        self.values.clear();
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns true if at least half of the window is filled, which is enough for a median.
    pub(super) fn is_full(&self) -> bool {
        self.values.len() >= self.limit.max(1).div_ceil(2)
    }
}

/// A window of consecutive iterations has the size of the batches that are fetched concurrently. Such batches arrive
/// together: after a long wait, the next batches are available immediately, so only the sum is meaningful.
impl SlidingWindow<Iteration> {
    /// Adds an iteration and returns the sum of the window, or `None` if there are not enough iterations yet.
    pub(super) fn add(&mut self, iteration: Iteration) -> Option<Iteration> {
        self.push(iteration);
        (self.values.len() == self.limit).then(|| self.sum())
    }

    fn sum(&self) -> Iteration {
        let all = &self.values;
        let said: Vec<f64> = all.iter().filter_map(|iteration| iteration.on_host).collect();
        Iteration {
            waited: all.iter().map(|iteration| iteration.waited).sum(),
            computed: all.iter().map(|iteration| iteration.computed).sum(),
            samples: all.iter().map(|iteration| iteration.samples).sum(),
            bytes: all.iter().map(|iteration| iteration.bytes).sum(),
            on_host: (!said.is_empty()).then(|| said.iter().sum::<f64>() / said.len() as f64),
        }
    }
}

impl SlidingWindow<f64> {
    pub(super) fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.push(value);
        }
    }

    pub(super) fn median(&self) -> Option<f64> {
        if !self.is_full() {
            return None;
        }
        let mut sorted: Vec<f64> = self.values.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}
