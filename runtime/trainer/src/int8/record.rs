use frostline_graph::Model;
use frostline_job::Event;
use frostline_quantization::{QuantizationError, Quantized, Ranges, Scheme, quantize};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// A quantization with measurements. It contains everything needed to recreate the network on any machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Int8Record {
    pub(crate) ranges: Ranges,
    pub(crate) scheme: Scheme,
    /// Mean cosine similarity to f32 of activations at the freeze cut.
    pub(crate) cosine: f64,
    /// Throughput relative to f32, on the machine that calibrated.
    pub(crate) speedup: f64,
    /// Module name of the cut where the error increased most; `None` if the error was small from the start.
    pub(crate) worst: Option<String>,
    /// Number of layers in int8.
    pub(crate) quantized_layers: usize,
    /// Number of layers eligible for int8.
    pub(crate) layers: usize,
    /// Whether the job uses int8.
    pub(crate) used: bool,
}

impl Int8Record {
    /// Reads the record at `path`. Returns `None` if the file is missing or invalid.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Quantizes `model` according to the record.
    pub(crate) fn apply(&self, model: &Model, freeze: &str) -> Result<Quantized, QuantizationError> {
        quantize(model, freeze, &self.ranges, &self.scheme)
    }

    /// Converts the record to an event, with the reason for the decision.
    pub(crate) fn event(&self, reason: String) -> Event {
        Event::Int8 {
            used: self.used,
            quantized_layers: self.quantized_layers,
            layers: self.layers,
            cosine: self.cosine,
            speedup: self.speedup,
            reason,
        }
    }
}
