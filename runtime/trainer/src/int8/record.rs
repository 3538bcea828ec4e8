use frostline_graph::Model;
use frostline_job::Event;
use frostline_quantisation::{QuantisationError, Quantised, Ranges, Recipe, quantise};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// What int8 makes of a network's frozen layers. Enough to make the very same network again, on any machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Int8Record {
    pub(crate) ranges: Ranges,
    pub(crate) recipe: Recipe,
    /// How rows at the freeze cut agree with those in f32.
    pub(crate) cosine: f64,
    /// Images a second over those of f32, on the machine that calibrated.
    pub(crate) speedup: f64,
    /// The layers that cost most of the precision, by the module or cut they end in.
    pub(crate) worst: Option<String>,
    /// Layers that are rounded, and layers with weights in all.
    pub(crate) layers: (usize, usize),
    /// Whether the job computes so.
    pub(crate) used: bool,
}

impl Int8Record {
    /// The record at `path`, if there is one that can be read.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// The network of this record.
    pub(crate) fn apply(&self, model: &Model, freeze: &str) -> Result<Quantised, QuantisationError> {
        quantise(model, freeze, &self.ranges, &self.recipe)
    }

    /// For people and programs, with why the job computes so or not.
    pub(crate) fn event(&self, reason: String) -> Event {
        let (layers, of) = self.layers;
        Event::Int8 {
            used: self.used,
            layers,
            of,
            cosine: self.cosine,
            speedup: self.speedup,
            reason,
        }
    }
}
