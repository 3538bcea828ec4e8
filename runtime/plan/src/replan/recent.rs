//! Recent measurements, robust against a single slow batch.

use super::observed::Iteration;
use std::collections::VecDeque;

/// Consecutive iterations with batches that are fetched concurrently. Such batches arrive together: after a
/// long wait, the next batches are available immediately, so only the sum is meaningful.
#[derive(Debug, Default)]
pub(super) struct IterationWindow {
    iterations: VecDeque<Iteration>,
    most: usize,
}

impl IterationWindow {
    /// Removes all iterations and changes the size to `most`. A larger previous size is retained, because
    /// some of the earlier batches might still be in flight.
    pub(super) fn clear(&mut self, most: usize) {
        self.iterations.clear();
        self.most = self.most.max(most).max(1);
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Adds an iteration and returns the sum of the last `most` iterations, or `None` if there are not enough
    /// iterations yet.
    pub(super) fn add(&mut self, iteration: Iteration) -> Option<Iteration> {
        if self.iterations.len() >= self.most {
            self.iterations.pop_front();
        }
        self.iterations.push_back(iteration);
        (self.iterations.len() == self.most).then(|| self.sum())
    }

    fn sum(&self) -> Iteration {
        let all = &self.iterations;
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

/// Sliding window of values.
#[derive(Debug, Default)]
pub(super) struct Recent {
    values: VecDeque<f64>,
    limit: usize,
}

impl Recent {
    pub(super) fn add(&mut self, value: f64) {
        if value.is_finite() {
            if self.values.len() >= self.limit {
                self.values.pop_front();
            }
            self.values.push_back(value);
        }
    }

    /// Removes all values and changes the size to `most`.
    pub(super) fn clear(&mut self, most: usize) {
        self.forget();
        self.limit = most.max(1);
    }

    /// Removes all values because they are no longer valid.
    pub(super) fn forget(&mut self) {
        self.values.clear();
    }

    /// Returns true if at least half of the window is filled, which is enough for a median.
    pub(super) fn is_full(&self) -> bool {
        self.values.len() >= self.limit.max(1).div_ceil(2)
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
