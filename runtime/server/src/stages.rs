//! The networks the lanes run: models of this host, cut to the stage asked for.

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

/// What a session takes while it opens, in bytes of its model.
const SESSION: u64 = 2;

/// Cuts stages out of the models on the shelf. They are not kept: lanes have sessions, and what they open lies prepared on disk.
pub(crate) struct ModelStages {
    models: Arc<UploadStore<ModelFacts>>,
    runtime: Handle,
    room: TenantMemory,
    limits: ModelLimits,
}

impl ModelStages {
    /// Stages of `models`, cut in what lanes may have of `memory`.
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
        // What is cut out of it is in what the lane reserved for the session, whose process has nothing of it yet.
        let _memory = self.room.reserve_blocking(whole)?;
        let blob = self.runtime.block_on(self.models.bytes_of(&stage.model));
        let bytes = blob.map_err(|error| match &error {
            StateError::Gone { .. } => OpError::new(OpErrorCode::NotFound, error.to_string()),
            _ => OpError::runtime(format!("model {}: {}", stage.model, error.tenant_message())),
        })?;
        // What lies in the state may be from a host that admits more, or from whoever else writes there.
        let part = Model::admit(bytes, &self.limits)
            .and_then(|model| model.slice(Some(&stage.from), Some(&stage.to)))
            .and_then(|part| part.to_bytes());
        part.map(Bytes::from)
            .map_err(|error| OpError::invalid(format!("stage {} to {}: {error}", stage.from, stage.to)))
    }

    /// As the graph says: only cuts in f32 are known.
    fn row(&self, stage: &Stage) -> Option<(DType, Shape)> {
        let model = self.models.find_by_hash(&stage.model)?;
        let cut = model.facts.cuts.iter().find(|cut| cut.name == stage.to)?;
        Some((DType::F32, Shape::new(cut.shape.clone())))
    }

    /// As of the whole model, which takes more than a part of it.
    fn guess(&self, stage: &Stage) -> MemoryEstimate {
        let model = self.models.find_by_hash(&stage.model);
        model.map_or_else(MemoryEstimate::default, |model| MemoryEstimate {
            session: model.bytes.saturating_mul(SESSION),
            fixed: model.facts.alive.fixed,
            per_row: model.facts.alive.per_row,
        })
    }
}
