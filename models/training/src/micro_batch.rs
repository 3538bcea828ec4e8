//! How a CPU takes the steps of a batch: a rule, so that equal jobs compute equal bits.

use crate::winograd::faster_by_winograd;
use crate::{BatchNorm, StepMemory, StepSettings, TrainingError, TrainingGraph};
use frostline_graph::Model;

/// Tensors of a step that take fewer bytes together are no reason to divide a batch.
const FEW_BYTES: u64 = 64 << 20;

/// A micro-batch has no fewer rows: each reads all weights, and matrix products get short.
const FEWEST_ROWS: usize = 8;

/// How a CPU takes the steps of a batch: in micro-batches, one after another, whose gradients make one update. The memory of a step then no
/// longer grows with the batch, but for the rows that wait.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuSteps {
    /// With what is faster on a CPU; those of micro-batches [accumulate](StepSettings::accumulates).
    pub settings: StepSettings,
    /// Rows of a micro-batch; the last of a batch may have fewer. All rows of the batch where it is not divided.
    pub rows: usize,
    /// What they take, with the rest of the batch; `None` where its shapes cannot be followed.
    pub memory: Option<StepMemory>,
}

impl CpuSteps {
    /// Of batches of `batch` rows. A batch is halved while the tensors of a step take more than the state and more than 64 MiB. It stays whole where
    /// that saves less than a tenth, as sums of gradients are kept beside, and where [`BatchNorm::Updated`] normalizes with its statistics.
    ///
    /// # Errors
    /// As [`TrainingGraph::build`].
    pub fn of_batch(suffix: &Model, batch: usize, settings: &StepSettings) -> Result<Self, TrainingError> {
        let whole = Self::in_rows(suffix, batch, batch, settings)?;
        if settings.batch_norm == BatchNorm::Updated {
            return Ok(whole);
        }
        let mut divided = whole.clone();
        while divided.rows >= 2 * FEWEST_ROWS && divided.is_large() {
            divided = Self::in_rows(suffix, batch, divided.rows.div_ceil(2), settings)?;
        }
        Ok(match divided.bytes() <= whole.bytes() / 10 * 9 {
            true => divided,
            false => whole,
        })
    }

    fn in_rows(
        suffix: &Model,
        batch: usize,
        rows: usize,
        settings: &StepSettings,
    ) -> Result<Self, TrainingError> {
        let settings = StepSettings {
            accumulates: settings.accumulates || rows < batch,
            winograd: faster_by_winograd(suffix, rows)?,
            ..settings.clone()
        };
        Ok(Self {
            memory: TrainingGraph::memory(suffix, rows, batch - rows, &settings)?,
            settings,
            rows,
        })
    }

    /// The most where that is not known, so that it saves nothing.
    fn bytes(&self) -> u64 {
        self.memory.map_or(u64::MAX, |memory| memory.bytes())
    }

    fn is_large(&self) -> bool {
        self.memory
            .is_some_and(|memory| memory.alive > memory.state.max(FEW_BYTES))
    }
}
