//! Source of the networks for lanes. Extracts the requested stage from an uploaded model.

use crate::scheduling::TenantMemory;
use crate::state::{ModelFacts, StateError, UploadStore};
use bytes::Bytes;
use frostline_batching::device::MemoryEstimate;
use frostline_batching::{Kind, Memory};
use frostline_engine::StageSource;
use frostline_graph::{Model, ModelLimits};
use frostline_tensor::{DType, OpError, OpErrorCode, Shape, Stage};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Memory to open a session, as a factor of the model's size.
const SESSION_FACTOR: u64 = 2;

/// Extracts stages from uploaded models. The result is not cached, because lanes keep open sessions and
/// prepared stages are on disk.
pub(crate) struct ModelStages {
    models: Arc<UploadStore<ModelFacts>>,
    runtime: Handle,
    room: TenantMemory,
    limits: ModelLimits,
}

impl ModelStages {
    /// Creates a source of stages from `models`. The work uses memory of the kind for lanes.
    pub(crate) fn new(
        models: Arc<UploadStore<ModelFacts>>,
        runtime: Handle,
        memory: &Memory,
        limits: ModelLimits,
    ) -> Self {
        Self {
            models,
            runtime,
            limits,
            room: TenantMemory::new(memory, "", Kind::Lane),
        }
    }
}

impl StageSource for ModelStages {
    fn stage_model(&self, stage: &Stage) -> Result<Bytes, OpError> {
        let whole = self
            .models
            .find_by_hash(&stage.model)
            .map_or(0, |model| model.bytes);
        // The lane has already reserved memory for the session. The session's process does not use it yet, so
        // the reservation covers the extracted stage.
        let _memory = self.room.reserve_blocking(whole)?;
        let blob = self.runtime.block_on(self.models.bytes_of(&stage.model));
        let bytes = blob.map_err(|error| match &error {
            StateError::Gone { .. } => OpError::new(OpErrorCode::NotFound, error.to_string()),
            _ => OpError::runtime(format!("model {}: {}", stage.model, error.tenant_message())),
        })?;
        // Check the model again: stored models may come from a host with higher limits, or from another
        // writer.
        let part = Model::admit(bytes, &self.limits)
            .and_then(|model| model.slice(Some(&stage.from), Some(&stage.to)))
            .and_then(|part| part.to_bytes());
        part.map(Bytes::from)
            .map_err(|error| OpError::invalid(format!("stage {} to {}: {error}", stage.from, stage.to)))
    }

    /// Returns the shape of the cut. All cuts in the metadata are f32.
    fn row(&self, stage: &Stage) -> Option<(DType, Shape)> {
        let model = self.models.find_by_hash(&stage.model)?;
        let cut = model.facts.cuts.iter().find(|cut| cut.name == stage.to)?;
        Some((DType::F32, Shape::new(cut.shape.clone())))
    }

    /// Returns the estimate for the whole model, which is an upper limit for the stage.
    fn guess(&self, stage: &Stage) -> MemoryEstimate {
        let model = self.models.find_by_hash(&stage.model);
        model.map_or_else(MemoryEstimate::default, |model| MemoryEstimate {
            session: model.bytes.saturating_mul(SESSION_FACTOR),
            fixed: model.facts.alive.fixed,
            per_row: model.facts.alive.per_row,
        })
    }
}
