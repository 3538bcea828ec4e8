use crate::layers::Layers;
use crate::{QuantizationError, Range, Ranges, Scheme, WeightBits};
use frostline_graph::Model;
use frostline_graph::build::{int, node, value};
use frostline_graph::onnx::data_type;
use frostline_tensor::{Data, Tensor};

/// Calibration network of the frozen layers with the ranges measured so far. For every value that may be
/// quantized, the network outputs the smallest and the largest element.
#[derive(Debug, Clone)]
pub struct Calibration {
    model: Model,
    ranges: Ranges,
}

const LEAST: &str = "/least";
const GREATEST: &str = "/greatest";

impl Calibration {
    /// Builds the calibration network for the layers of `model` up to the cut `freeze`.
    ///
    /// # Errors
    /// Returns [`QuantizationError::NoQuantizableLayer`] if no layer can be quantized,
    /// [`QuantizationError::Opset`] if the operators are too old, and [`QuantizationError::Graph`] if the
    /// network cannot be cut at `freeze` or its shapes are unknown.
    pub fn new(model: &Model, freeze: &str) -> Result<Self, QuantizationError> {
        let layers = Layers::up_to(model, freeze)?;
        if layers.quantizable().next().is_none() {
            return Err(QuantizationError::NoQuantizableLayer);
        }
        let watched = layers.quantized_values(&Scheme::new(WeightBits::Eight));
        let part = model.slice(None, Some(freeze))?;
        let mut graph = part.graph().clone();
        graph.output.clear();
        for name in watched.into_keys() {
            for (operator, end) in [("ReduceMin", LEAST), ("ReduceMax", GREATEST)] {
                let output = format!("{name}{end}");
                let reduce = node(operator, &[name], &[&output]).with([int("keepdims", 0)]);
                graph.node.push(reduce);
                graph.output.push(value(&output, data_type::FLOAT, &[]));
            }
        }
        Ok(Self {
            model: part.with_graph(graph)?,
            ranges: Ranges::default(),
        })
    }

    /// Network to run on calibration images. The outputs are `f32` scalars.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Widens the ranges by the outputs of [`Self::model`] for a batch.
    pub fn add(&mut self, outputs: &[(String, Tensor)]) {
        for (output, tensor) in outputs {
            let Data::F32(elements) = tensor.data() else {
                continue;
            };
            let name = output
                .strip_suffix(LEAST)
                .or_else(|| output.strip_suffix(GREATEST));
            if let (Some(name), Some(&element)) = (name, elements.first()) {
                let range = Range {
                    least: element,
                    greatest: element,
                };
                self.ranges.widen(name, range);
            }
        }
    }

    /// Returns the ranges over all batches.
    pub fn ranges(self) -> Ranges {
        self.ranges
    }
}
