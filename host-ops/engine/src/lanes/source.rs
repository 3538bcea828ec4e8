use super::child::Guards;
use super::{LanesConfig, LanesPlace};
use crate::prepared::Prepared;
use crate::{Device, SessionOptions};
use bytes::Bytes;
use frostline_batching::device::MemoryEstimate;
use frostline_tensor::{DType, OpError, Shape, Stage};
use std::path::PathBuf;
use std::sync::Arc;

/// Provides the networks that lanes run.
pub trait StageSource: Send + Sync + 'static {
    /// Returns the ONNX bytes of `stage`, with an input called `stage.from`, an output called `stage.to`, and
    /// internal weights. A lane thread calls this if the stage has neither a session nor a prepared form.
    /// Blocking is allowed.
    ///
    /// # Errors
    /// Returns an error if the model or the cut does not exist. The submission fails with this error.
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError>;

    /// Returns the type and shape of an output row of `stage`, if known. Called for each submission by the
    /// submitting thread, so it must not block.
    fn row(&self, stage: &Stage) -> Option<(DType, Shape)> {
        let _ = stage;
        None
    }

    /// Estimates the memory that `stage` needs. The estimate is used until a lane has measured the stage.
    /// Called for each submission by the submitting thread, so it must not block.
    fn guess(&self, stage: &Stage) -> MemoryEstimate {
        let _ = stage;
        MemoryEstimate::default()
    }
}

/// A network as input for opening a session.
pub(super) enum StageModel {
    Bytes(Bytes),
    /// The folder with the prepared stage.
    Prepared(PathBuf),
}

/// Networks of a host and their prepared forms.
pub(super) struct Networks {
    pub(super) source: Arc<dyn StageSource>,
    pub(super) config: LanesConfig,
    pub(super) prepared: Option<Prepared>,
    /// Processes of the lanes and of preparations.
    pub(super) guards: Arc<Guards>,
}

impl Networks {
    pub(super) fn new(config: &LanesConfig, source: Arc<dyn StageSource>) -> Self {
        let stages = match &config.place {
            // A CPU's kernel layout is useless on a GPU.
            LanesPlace::Child(place) if config.device == Device::Cpu => place.prepared.as_ref(),
            _ => None,
        };
        let options = SessionOptions {
            threads: config.threads_per_lane,
            arena: false,
            device: config.device,
            ..SessionOptions::default()
        };
        Self {
            source,
            config: config.clone(),
            prepared: stages.and_then(|stages| Prepared::open(&stages.folder, stages.most_bytes, &options)),
            guards: Arc::default(),
        }
    }

    /// Returns the ONNX bytes of `stage`.
    pub(super) fn bytes(&self, stage: &Stage) -> Result<Bytes, OpError> {
        self.source.stage_model(&stage.network())
    }
}
