use crate::{Normalization, OpError, PixelFormat, PixelSpec, Precision, SampleRef, Tensor};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A boxed future that owns what it needs; dropping it cancels the operation.
pub type BoxFuture<T> = futures::future::BoxFuture<'static, T>;

/// A part of a model that can be executed: everything between two cuts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stage {
    /// SHA-256 of the model's bytes, lower-case hex.
    pub model: String,
    /// The tensor the stage takes: the model's input or a cut.
    pub from: String,
    /// The cut the stage produces.
    pub to: String,
    /// The batch is pixels `u8[n, 3, h, w]`, and this what they stand for: the network's input is made of them where it runs, so that a
    /// quarter of the bytes travels. `None` for a batch that is the input itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pixels: Option<Normalization>,
    /// How exactly it is computed: what may be less exact is never shared with what may not.
    #[serde(default, skip_serializing_if = "Precision::is_full")]
    pub precision: Precision,
}

impl Stage {
    /// The network it runs, however its input travels.
    pub fn network(&self) -> Self {
        Self {
            pixels: None,
            ..self.clone()
        }
    }
}

/// Executes stages of models on whole batches.
pub trait GraphExecutor: Send + Sync + 'static {
    /// Runs `stage` on `batch` (first axis: samples) and returns the batch of the stage's output.
    ///
    /// The work is queued before the future is first polled; dropping the future removes it from the queue, or ends it
    /// where it runs.
    ///
    /// # Errors
    /// [`OpError`] with the engine's own text: an unknown stage, a batch that does not fit, a failed kernel.
    fn submit(&self, stage: &Stage, batch: Tensor) -> BoxFuture<Result<Tensor, OpError>>;
}

/// A sample that could not be turned into a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleFailure {
    /// Its index among the samples asked for.
    pub index: usize,
    /// Why.
    pub error: OpError,
}

/// Pixels of the samples that loaded, and the failures of those that did not.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedPixels {
    /// `[rows, 3, h, w]`; one row per sample that loaded, in the order asked for. Without any such sample, zero rows.
    pub pixels: Tensor,
    /// The samples that did not load, by ascending index.
    pub failed: Vec<SampleFailure>,
}

/// Reads, decodes and preprocesses samples. An implementation is bound to one tenant's data root.
pub trait SampleLoader: Send + Sync + 'static {
    /// Loads `samples` into one batch. A broken sample is reported, it does not fail the batch.
    fn load(
        &self,
        samples: Vec<SampleRef>,
        spec: PixelSpec,
        format: PixelFormat,
    ) -> BoxFuture<Result<LoadedPixels, OpError>>;
}

/// Reads objects. An implementation is bound to one tenant's data root.
pub trait ObjectReader: Send + Sync + 'static {
    /// The object's size in bytes.
    fn size(&self, key: String) -> BoxFuture<Result<u64, OpError>>;
    /// The bytes of `range`, cut off at the object's end.
    fn read(&self, key: String, range: Range<u64>) -> BoxFuture<Result<Vec<u8>, OpError>>;
}
