//! Source of the networks for lanes. Extracts the requested stage from an uploaded model.

use crate::refusal::state_message;
use crate::scheduling::TenantMemory;
use bytes::Bytes;
use frostline_batching::device::MemoryEstimate;
use frostline_batching::{Kind, Memory};
use frostline_engine::StageSource;
use frostline_graph::{Model, ModelLimits};
use frostline_quantization::for_precision;
use frostline_state::{ModelFacts, StateError, UploadStore};
use frostline_tensor::{DType, OpError, OpErrorCode, Precision, Shape, Stage};
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
        let copies = match stage.precision {
            Precision::Full | Precision::Tf32 => 1,
            // The folded weights, the f16 weights and the serialized stage exist at the same time.
            Precision::F16 => 2,
        };
        let _memory = self.room.reserve_blocking(whole.saturating_mul(copies))?;
        let blob = self.runtime.block_on(self.models.bytes_of(&stage.model));
        let bytes = blob.map_err(|error| match error {
            StateError::Gone { .. } => OpError::new(OpErrorCode::NotFound, error.to_string()),
            _ => OpError::runtime(format!("model {}: {}", stage.model, state_message(&error))),
        })?;
        stage_network(bytes, stage, &self.limits)
    }

    /// Returns the shape of the cut. All cuts in the metadata are f32.
    fn row(&self, stage: &Stage) -> Option<(DType, Shape)> {
        let model = self.models.find_by_hash(&stage.model)?;
        let cut = model.facts.cuts.iter().find(|cut| cut.name == stage.to)?;
        Some((DType::F32, Shape::new(cut.shape.clone())))
    }

    /// Returns the estimate for the whole model, which is an upper limit for the stage. In f16, weights need
    /// half of the memory. Activations are estimated as in f32, because those at the borders of layers that
    /// remain f32 exist in both types.
    fn guess(&self, stage: &Stage) -> MemoryEstimate {
        let model = self.models.find_by_hash(&stage.model);
        let factor = match stage.precision {
            Precision::Full | Precision::Tf32 => SESSION_FACTOR,
            Precision::F16 => SESSION_FACTOR / 2,
        };
        model.map_or_else(MemoryEstimate::default, |model| MemoryEstimate {
            session: model.bytes.saturating_mul(factor),
            fixed: model.facts.alive.fixed,
            per_row: model.facts.alive.per_row,
        })
    }
}

/// Extracts the network of `stage` from an uploaded model, in the precision of the stage.
///
/// The model is checked again: stored models may come from a host with higher limits, or from another writer.
fn stage_network(model: Bytes, stage: &Stage, limits: &ModelLimits) -> Result<Bytes, OpError> {
    let part = Model::admit(model, limits)
        .and_then(|model| model.slice(Some(&stage.from), Some(&stage.to)))
        .and_then(|part| for_precision(part, stage.precision))
        .and_then(|part| part.to_bytes());
    part.map(Bytes::from)
        .map_err(|error| OpError::invalid(format!("stage {} to {}: {error}", stage.from, stage.to)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_graph::build::{batched, initializer, model, node};
    use frostline_graph::onnx::{GraphProto, data_type};
    use frostline_tensor::Tensor;

    #[test]
    fn a_stage_in_f16_gets_an_f16_network_and_others_the_uploaded_one() {
        let graph = GraphProto {
            name: "net".to_owned(),
            node: vec![
                node("Gemm", &["x", "w"], &["h"]),
                node("Relu", &["h"], &["cut"]),
                node("Gemm", &["cut", "w"], &["y"]),
            ],
            initializer: vec![initializer("w", &Tensor::f32([4, 4], vec![0.5; 16]).unwrap())],
            input: vec![batched("x", &[4])],
            output: vec![batched("y", &[4])],
            ..GraphProto::default()
        };
        let whole = Model::from_proto(model(17, graph)).unwrap().to_bytes().unwrap();
        let network = |precision| {
            let stage = Stage {
                model: String::new(),
                from: "x".to_owned(),
                to: "cut".to_owned(),
                pixels: None,
                precision,
            };
            stage_network(whole.clone().into(), &stage, &ModelLimits::default()).unwrap()
        };
        let full = network(Precision::Full);
        assert_eq!(network(Precision::Tf32), full);
        let half = Model::from_bytes(network(Precision::F16)).unwrap();
        let types = |model: &Model| -> Vec<i32> {
            let weights = model.graph().initializer.iter();
            weights.map(|weight| weight.data_type).collect()
        };
        assert_eq!(types(&half), [data_type::FLOAT16]);
        assert_eq!(types(&Model::from_bytes(full).unwrap()), [data_type::FLOAT]);
        assert_eq!(
            (half.input_name().unwrap(), half.outputs()[0].name.as_str()),
            ("x", "cut")
        );
    }
}
