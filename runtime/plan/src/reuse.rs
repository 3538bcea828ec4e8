//! Effect of the feature cache on a job.

use frostline_wire::{Encoding, Values};
use serde::{Deserialize, Serialize};

/// Parameters of the feature cache. Features are cached during the first pass, so later epochs use neither
/// host nor link nor middle.
///
/// Fractions refer to the training features of all views. `fits` and `bytes` assume features in f32; if the
/// job uses f16 on the link, the features are also cached in f16.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reuse {
    /// Fraction of the features that are already cached when the job starts, 0 to 1.
    pub rows_kept_already: f64,
    /// Maximum fraction of the features that can be cached, 0 to 1.
    pub fits: f64,
    /// Number of views, at least 1. Epoch e uses the view e mod `views`, so the first `views` epochs fetch.
    /// This is 1 without augmentation.
    pub views: u32,
    /// Bytes of all features, including validation, even if they do not fit. This is 0 if the size is
    /// unknown.
    pub bytes: u64,
}

/// Creates an empty cache with unlimited size.
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

/// Consecutive iterations that fetch the same fraction of the features.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FetchPass {
    pub(crate) iterations: u64,
    /// The fraction of features to fetch. The rest is cached.
    pub(crate) fetched: f64,
}

impl Reuse {
    /// Adjusts the size of the features to the encoding on the link.
    pub(crate) fn with_encoding(self, encoding: Encoding) -> Self {
        if encoding.values != Values::F16 {
            return self;
        }
        Self {
            fits: (2.0 * self.fits).min(1.0),
            bytes: self.bytes.div_ceil(2),
            ..self
        }
    }

    /// The fraction of features in the cache after the first pass. Features that are already cached are not
    /// evicted.
    fn cached_fraction(&self) -> f64 {
        self.fits.max(self.rows_kept_already).clamp(0.0, 1.0)
    }

    /// Bytes in the cache after the first pass.
    pub(crate) fn store_bytes(&self) -> u64 {
        (self.bytes as f64 * self.cached_fraction()).round() as u64
    }

    /// Divides a job into the first pass and the later iterations. In the first pass, the samples of all
    /// views are new.
    pub(crate) fn passes(&self, iterations: u64, epoch_iterations: u64) -> [FetchPass; 2] {
        let draws = u64::from(self.views.max(1));
        let first = epoch_iterations.saturating_mul(draws).min(iterations);
        [
            FetchPass {
                iterations: first,
                fetched: 1.0 - self.rows_kept_already.clamp(0.0, 1.0),
            },
            FetchPass {
                iterations: iterations - first,
                fetched: 1.0 - self.cached_fraction(),
            },
        ]
    }
}

impl FetchPass {
    /// Creates a pass in which all features are fetched.
    pub(crate) fn of_fetched(iterations: u64) -> Self {
        Self {
            iterations,
            fetched: 1.0,
        }
    }

    /// Number of iterations that still fetch after `done` iterations. Partially cached iterations are counted
    /// proportionally.
    pub(crate) fn remaining_fetches(&self, done: u64) -> f64 {
        self.iterations.saturating_sub(done) as f64 * self.fetched
    }
}
