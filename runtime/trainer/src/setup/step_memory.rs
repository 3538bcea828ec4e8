//! Checks that a training step fits this machine's memory, before uploads and training.

use crate::{SmallerBatch, TrainerError};
use frostline_compute::ComputeError;
use frostline_graph::Model;
use frostline_training::{CpuSteps, StepSettings};

/// A training step to check.
pub(super) struct StepPlan<'a> {
    pub(super) suffix: &'a Model,
    pub(super) settings: &'a StepSettings,
    /// The freeze cut, used in error messages.
    pub(super) freeze: &'a str,
    /// Samples of a full batch.
    pub(super) batch: usize,
    /// Batches per update.
    pub(super) together: usize,
}

impl StepPlan<'_> {
    /// Refuses a step that needs more than `available` bytes, and proposes a batch that fits.
    ///
    /// # Errors
    /// Returns [`TrainerError::StepMemory`] if the step does not fit, and [`ComputeError::Training`] if the
    /// suffix cannot be trained.
    pub(super) fn check(&self, available: u64) -> Result<(), TrainerError> {
        let Some(needed) = self.bytes(self.batch)?.filter(|needed| *needed > available) else {
            return Ok(());
        };
        let mut fits = 0;
        let mut too_large = self.batch;
        while too_large - fits > 1 {
            let tried = fits.midpoint(too_large);
            match self.bytes(tried)?.is_some_and(|bytes| bytes <= available) {
                true => fits = tried,
                false => too_large = tried,
            }
        }
        Err(TrainerError::StepMemory {
            batch: self.batch,
            needed,
            available,
            fits,
            smaller: smaller(fits, self.batch.saturating_mul(self.together)),
        })
    }

    /// Bytes required by a step; `None` if unknown.
    fn bytes(&self, batch: usize) -> Result<Option<u64>, TrainerError> {
        let steps = CpuSteps::of_batch(self.suffix, batch, self.settings);
        let steps = steps.map_err(ComputeError::not_trained(self.freeze))?;
        Ok(steps.memory.map(|memory| memory.bytes()))
    }
}

/// Proposes a batch of up to `fits` samples that divides an update of `together` samples evenly.
fn smaller(fits: usize, together: usize) -> Option<SmallerBatch> {
    let batch = (1..=fits).rev().find(|batch| together.is_multiple_of(*batch))?;
    Some(SmallerBatch {
        batch,
        accumulation: together / batch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::network;
    use frostline_training::Optimizer;

    #[test]
    fn a_batch_that_does_not_fit_is_refused_with_one_that_does() {
        let suffix = network();
        let settings: StepSettings = Optimizer::Sgd {
            momentum: 0.9,
            nesterov: false,
            weight_decay: 0.0,
        }
        .into();
        let plan = |batch, together| StepPlan {
            suffix: &suffix,
            settings: &settings,
            freeze: "r1",
            batch,
            together,
        };
        let bytes = |batch| plan(batch, 1).bytes(batch).unwrap().unwrap();
        assert!(bytes(1) < bytes(64) && bytes(128) < 3 * bytes(64));
        assert!(plan(64, 1).check(bytes(64)).is_ok());
        let error = plan(64, 2).check(bytes(20)).unwrap_err();
        let refused = error.to_string();
        assert!(refused.contains(&bytes(64).to_string()), "{refused}");
        assert!(
            refused.contains(&format!("{} are available", bytes(20))),
            "{refused}"
        );
        assert!(refused.ends_with("at most 20 samples fit"), "{refused}");
        let TrainerError::StepMemory { smaller, .. } = error else {
            panic!("{error}");
        };
        let batch = 16;
        let accumulation = 8;
        assert_eq!(smaller, Some(SmallerBatch { batch, accumulation }));
        assert!(plan(batch, accumulation).check(bytes(20)).is_ok());
        let refused = plan(64, 1).check(1).unwrap_err().to_string();
        assert!(refused.contains("freeze more layers"), "{refused}");
    }
}
