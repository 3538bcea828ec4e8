//! What was seen last, in a form that one slow batch does not move.

use super::observed::Iteration;
use std::collections::VecDeque;

/// Iterations whose batches were fetched at the same time. Such batches arrive together: after one long wait several come without any,
/// so that only their sum says what one takes.
#[derive(Debug, Default)]
pub(super) struct Bunch {
    iterations: VecDeque<Iteration>,
    most: usize,
}

impl Bunch {
    /// Forgets all, and takes in bunches of `most` from now on; of more, where there were more before, since some of them may still
    /// be on their way.
    pub(super) fn clear(&mut self, most: usize) {
        self.iterations.clear();
        self.most = self.most.max(most).max(1);
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Takes one in and gives the sum of the last ones; `None` until they are enough.
    pub(super) fn add(&mut self, iteration: Iteration) -> Option<Iteration> {
        if self.iterations.len() >= self.most {
            self.iterations.pop_front();
        }
        self.iterations.push_back(iteration);
        (self.iterations.len() == self.most).then(|| self.sum())
    }

    fn sum(&self) -> Iteration {
        let all = || self.iterations.iter();
        let said: Vec<f64> = all().filter_map(|iteration| iteration.on_host).collect();
        Iteration {
            waited: all().map(|iteration| iteration.waited).sum(),
            computed: all().map(|iteration| iteration.computed).sum(),
            samples: all().map(|iteration| iteration.samples).sum(),
            bytes: all().map(|iteration| iteration.bytes).sum(),
            on_host: (!said.is_empty()).then(|| said.iter().sum::<f64>() / said.len() as f64),
        }
    }
}

/// The last few values of something.
#[derive(Debug, Default)]
pub(super) struct Recent {
    values: VecDeque<f64>,
    most: usize,
}

impl Recent {
    pub(super) fn add(&mut self, value: f64) {
        if value.is_finite() {
            if self.values.len() >= self.most {
                self.values.pop_front();
            }
            self.values.push_back(value);
        }
    }

    /// Forgets all, and keeps `most` from now on.
    pub(super) fn clear(&mut self, most: usize) {
        self.forget();
        self.most = most.max(1);
    }

    /// Forgets all: it holds no longer.
    pub(super) fn forget(&mut self) {
        self.values.clear();
    }

    /// Whether a median of them says something.
    pub(super) fn is_full(&self) -> bool {
        self.values.len() >= self.most.max(1).div_ceil(2)
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
