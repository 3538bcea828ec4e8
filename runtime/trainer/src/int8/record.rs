use frostline_graph::Model;
use frostline_job::Event;
use frostline_quantization::{QuantizationError, Quantized, Ranges, Scheme, quantize};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// A quantization and its measurements: enough to write the same network again, on any machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Int8Record {
    pub(crate) ranges: Ranges,
    pub(crate) scheme: Scheme,
    /// Mean cosine similarity of activations at the freeze cut to those in f32.
    pub(crate) cosine: f64,
    /// Images a second over those of f32, on the machine that calibrated.
    pub(crate) speedup: f64,
    /// The cut, by its module, before which the error grew most; `None` if it was small from the start.
    pub(crate) worst: Option<String>,
    /// Layers in int8.
    pub(crate) quantized_layers: usize,
    /// Layers that could be.
    pub(crate) layers: usize,
    /// Whether the job uses it.
    pub(crate) used: bool,
}

impl Int8Record {
    /// The record at `path`, if there is one that can be read.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Writes the network.
    pub(crate) fn apply(&self, model: &Model, freeze: &str) -> Result<Quantized, QuantizationError> {
        quantize(model, freeze, &self.ranges, &self.scheme)
    }

    /// The event, with why int8 is used or not.
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
