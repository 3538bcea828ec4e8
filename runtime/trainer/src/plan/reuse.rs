//! Rows that are kept at the freeze cut, after the middle: what of a job still fetches.

use frostline_wire::{Encoding, Values};
use serde::{Deserialize, Serialize};

/// Rows kept while they are first trained on, so that later epochs need neither host nor link nor middle. Shares are
/// of the training rows of all draws; what fits and bytes are those of rows in f32: a job that travels in f16 is taken to keep f16.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reuse {
    /// Share of the rows that are there before the job begins, 0 to 1.
    pub rows_kept_already: f64,
    /// Share of the rows that the store can hold, 0 to 1.
    pub fits: f64,
    /// Fixed draws a sample, at least 1: epoch e uses draw e mod `views`, so that many epochs fetch. 1 without augmentation.
    pub views: u32,
    /// What all rows would take, those of validation included, whether they fit or not; 0 where that is not known.
    pub bytes: u64,
}

/// A new store without a limit.
impl Default for Reuse {
    fn default() -> Self {
        Self {
            rows_kept_already: 0.0,
            fits: 1.0,
            views: 1,
            bytes: 0,
        }
    }
}

/// Iterations in a row that fetch the same share of their rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pass {
    /// How many.
    pub(super) iterations: u64,
    /// The share they fetch; the others come from the store.
    pub(super) fetched: f64,
}

impl Reuse {
    /// The same for a job that travels so.
    pub(super) fn traveling(self, encoding: Encoding) -> Self {
        if encoding.values != Values::F16 {
            return self;
        }
        Self {
            fits: (2.0 * self.fits).min(1.0),
            bytes: self.bytes.div_ceil(2),
            ..self
        }
    }

    /// Share of the rows that are there after the first passes: what fits, and no less than there was.
    fn cached_fraction(&self) -> f64 {
        self.fits.max(self.rows_kept_already).clamp(0.0, 1.0)
    }

    /// Bytes of the store after the first passes.
    pub(super) fn store_bytes(&self) -> u64 {
        (self.bytes as f64 * self.cached_fraction()).round() as u64
    }

    /// The passes of a job of so many iterations that see each row of each draw for the first time, and all others.
    pub(super) fn passes(&self, iterations: u64, epoch_iterations: u64) -> [Pass; 2] {
        let draws = u64::from(self.views.max(1));
        let first = epoch_iterations.saturating_mul(draws).min(iterations);
        [
            Pass {
                iterations: first,
                fetched: 1.0 - self.rows_kept_already.clamp(0.0, 1.0),
            },
            Pass {
                iterations: iterations - first,
                fetched: 1.0 - self.cached_fraction(),
            },
        ]
    }
}

impl Pass {
    /// Iterations that fetch all.
    pub(super) fn of_fetched(iterations: u64) -> Self {
        Self {
            iterations,
            fetched: 1.0,
        }
    }

    /// Iterations' worth of rows that are still to be fetched once `done` of them are over.
    pub(super) fn left(&self, done: u64) -> f64 {
        self.iterations.saturating_sub(done) as f64 * self.fetched
    }
}
