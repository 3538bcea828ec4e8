//! Guest and model metadata, kept in memory by all hosts.

use crate::record::Unknown;
use crate::shelf::StoredVersion;
use frostline_wire::{CutInfo, GuestInfo, ModelInfo, TensorInfo};
use serde::{Deserialize, Serialize};

/// Model metadata, available without reading the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Name of the input tensor.
    pub input: String,
    /// Shape of a sample, without the batch.
    pub input_shape: Vec<usize>,
    /// Inputs of the network that the host joins into `input`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joined_inputs: Vec<TensorInfo>,
    /// Tensors at which the model can be split.
    pub cuts: Vec<CutInfo>,
    /// Memory used by activations during execution, estimated from the graph.
    pub alive: ActivationMemory,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Peak size of live activations in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivationMemory {
    /// Bytes independent of the batch size.
    pub fixed: u64,
    /// Bytes per sample of the batch.
    pub per_row: u64,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl ModelFacts {
    /// Returns the bytes of memory that the metadata uses.
    pub fn memory_bytes(&self) -> u64 {
        let cuts = self.cuts.iter();
        let cuts = cuts.map(|cut| size_of_val(cut) + cut.name.len() + size_of_val(&*cut.shape));
        let tensors = self.cuts.iter().flat_map(|cut| &cut.tensors);
        let tensors = tensors.chain(&self.joined_inputs);
        let tensors =
            tensors.map(|tensor| size_of_val(tensor) + tensor.name.len() + size_of_val(&*tensor.shape));
        let ends = size_of::<Self>() + self.input.len() + size_of_val(&*self.input_shape);
        (ends + tensors.sum::<usize>() + cuts.sum::<usize>()) as u64
    }
}

impl<F> StoredVersion<F> {
    /// Describes the upload in the audit log.
    pub fn audited(&self, name: &str) -> String {
        format!("{name}@sha256:{} of {} bytes", self.sha256, self.bytes)
    }
}

impl StoredVersion<()> {
    /// Describes the guest `name`.
    pub fn info(&self, name: &str, disabled: bool) -> GuestInfo {
        GuestInfo {
            name: name.to_owned(),
            sha256: self.sha256.clone(),
            bytes: self.bytes,
            uploaded_at: self.uploaded_at,
            disabled,
        }
    }
}

impl StoredVersion<ModelFacts> {
    /// Describes the model `name`, which is `shared` with all tenants or belongs to a tenant.
    pub fn info(&self, name: &str, shared: bool) -> ModelInfo {
        ModelInfo {
            name: name.to_owned(),
            sha256: self.sha256.clone(),
            bytes: self.bytes,
            uploaded_at: self.uploaded_at,
            input: self.facts.input.clone(),
            input_shape: self.facts.input_shape.clone(),
            joined_inputs: self.facts.joined_inputs.clone(),
            cuts: self.facts.cuts.clone(),
            shared,
        }
    }
}
