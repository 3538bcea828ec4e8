//! Division of batches on a CPU. A fixed rule decides, so equal jobs compute equal bits.

use crate::winograd::faster_by_winograd;
use crate::{BatchNorm, StepMemory, StepSettings, TrainingError};
use frostline_graph::Model;

/// Batches are not divided if the tensors of a step use fewer bytes in total.
const FEW_BYTES: u64 = 64 << 20;

/// Minimum number of rows in a micro-batch. Every micro-batch reads all weights, and matrix products become
/// inefficient with fewer rows.
const FEWEST_ROWS: usize = 8;

/// Plan for the steps of a batch on a CPU. A large batch is divided into micro-batches, which run one after
/// another and make a single update. Apart from the waiting rows, the memory of a step then no longer grows
/// with the batch.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuSteps {
    /// Settings with the weights selected for Winograd's algorithm. Micro-batches
    /// [accumulate](StepSettings::accumulates) gradients.
    pub settings: StepSettings,
    /// Number of rows per micro-batch, equal to the batch size if the batch is not divided. The last
    /// micro-batch can have fewer rows.
    pub rows: usize,
    /// Memory of the steps, including waiting rows, or `None` if shapes cannot be inferred.
    pub memory: Option<StepMemory>,
}

impl CpuSteps {
    /// Plans batches of `batch` rows. A batch is halved while the tensors of a step use more memory than the
    /// state and more than 64 MiB, down to 8 rows. It is not divided if this saves less than a tenth of the
    /// memory, because the sums of gradients need memory too, or if [`BatchNorm::Updated`] normalizes with
    /// the statistics of the batch.
    ///
    /// # Errors
    /// Returns the errors of [`TrainingGraph::build`](crate::TrainingGraph::build).
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
            memory: StepMemory::of_suffix(suffix, rows, batch - rows, &settings)?,
            settings,
            rows,
        })
    }

    /// Returns `u64::MAX` if the memory is unknown, so that the batch is not divided.
    fn bytes(&self) -> u64 {
        self.memory.map_or(u64::MAX, |memory| memory.bytes())
    }

    fn is_large(&self) -> bool {
        self.memory
            .is_some_and(|memory| memory.peak > memory.state.max(FEW_BYTES))
    }
}
