//! The networks the lanes run: models of this host, cut to the stage asked for.

use crate::state::{ModelFacts, Shelf, StateError};
use bytes::Bytes;
use frostline_engine::StageSource;
use frostline_graph::Model;
use frostline_tensor::{OpError, OpErrorCode, Stage};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Entries the caches expect; what bounds them is bytes.
const ENTRIES: usize = 64;

/// Cuts stages out of the models on the shelf, and keeps the bytes of the latest, bounded.
pub(crate) struct ModelStages {
    models: Arc<Shelf<ModelFacts>>,
    stages: Cache<Stage, Bytes, Size>,
    runtime: Handle,
}

#[derive(Clone)]
struct Size;

impl Weighter<Stage, Bytes> for Size {
    fn weight(&self, _: &Stage, bytes: &Bytes) -> u64 {
        (bytes.len() as u64).max(1)
    }
}

impl ModelStages {
    /// Stages of `models`, of which at most `limit` bytes are kept.
    pub(crate) fn new(models: Arc<Shelf<ModelFacts>>, limit: u64, runtime: Handle) -> Self {
        Self {
            models,
            stages: Cache::with_weighter(ENTRIES, limit, Size),
            runtime,
        }
    }

    fn cut(&self, stage: &Stage) -> Result<Bytes, OpError> {
        let blob = self.runtime.block_on(self.models.bytes_of(&stage.model));
        let bytes = blob.map_err(|error| match &error {
            StateError::Gone { .. } => OpError::new(OpErrorCode::NotFound, error.to_string()),
            _ => OpError::runtime(format!("model {}: {}", stage.model, error.told())),
        })?;
        let part = Model::from_bytes(bytes)
            .and_then(|model| model.slice(Some(&stage.from), Some(&stage.to)))
            .and_then(|part| part.to_bytes());
        part.map(Bytes::from)
            .map_err(|error| OpError::invalid(format!("stage {} to {}: {error}", stage.from, stage.to)))
    }
}

impl StageSource for ModelStages {
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError> {
        self.stages.get_or_insert_with(stage, || self.cut(stage))
    }
}
