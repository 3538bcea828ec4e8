use crate::{Normalization, OpError, PixelFormat, PixelSpec, Precision, SampleRef, Tensor};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A boxed `'static` future. Dropping it cancels the operation.
pub type BoxFuture<T> = futures::future::BoxFuture<'static, T>;

/// Part of a model between two cuts, as executed by an engine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stage {
    /// SHA-256 of the model's bytes, lower-case hex.
    pub model: String,
    /// Input tensor of the stage, either the model's input or a cut.
    pub from: String,
    /// Output tensor of the stage, a cut.
    pub to: String,
    /// Normalization of a batch of pixels `u8[n, 3, h, w]`. The executor computes the network's input from
    /// the pixels, so that only a quarter of the bytes is transferred. `None` if the batch is already
    /// normalized or is not pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pixels: Option<Normalization>,
    /// Precision of the computation. Stages with different precision are never joined.
    #[serde(default, skip_serializing_if = "Precision::is_full")]
    pub precision: Precision,
}

impl Stage {
    /// Returns the stage without input normalization, which identifies the network to execute.
    pub fn network(&self) -> Self {
        Self {
            pixels: None,
            ..self.clone()
        }
    }
}

/// Executes stages of models on batches.
pub trait GraphExecutor: Send + Sync + 'static {
    /// Executes `stage` on `batch` (first axis: samples) and returns the output batch.
    ///
    /// The work is queued before the future is first polled. Dropping the future removes the work from the
    /// queue, or cancels it if it is already running.
    ///
    /// # Errors
    /// Returns [`OpError`] with the engine's message if the stage is unknown, the batch has the wrong shape
    /// or type, or the computation fails.
    fn submit(&self, stage: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>>;
}

/// A sample that failed to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleFailure {
    /// Index in the requested samples.
    pub index: usize,
    /// Reason of the failure.
    pub error: OpError,
}

/// Pixels of the loaded samples, and the failures.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedPixels {
    /// `[rows, 3, h, w]` with one row per loaded sample in the requested order. It has zero rows if no sample
    /// was loaded.
    pub pixels: Tensor,
    /// Samples that failed to load, sorted by index.
    pub failed: Vec<SampleFailure>,
}

/// Reads, decodes and preprocesses samples. Each implementation is bound to one tenant's data root.
pub trait SampleLoader: Send + Sync + 'static {
    /// Loads `samples` into a batch. Broken samples are listed in [`LoadedPixels::failed`] and do not fail
    /// the batch.
    fn load(
        &self,
        samples: Vec<SampleRef>,
        spec: PixelSpec,
        format: PixelFormat,
    ) -> BoxFuture<Result<LoadedPixels, OpError>>;
}

/// Reads objects. Each implementation is bound to one tenant's data root.
pub trait ObjectReader: Send + Sync + 'static {
    /// Returns the size in bytes of one version of an object.
    fn size(&self, sample: SampleRef) -> BoxFuture<Result<u64, OpError>>;
    /// Returns the bytes of `range` of one version of an object, truncated at the end of the object.
    fn read(&self, sample: SampleRef, range: Range<u64>) -> BoxFuture<Result<Vec<u8>, OpError>>;
}
