use crate::layers::Layers;
use crate::{QuantizationError, Range, Ranges, Scheme, WeightBits};
use frostline_graph::Model;
use frostline_graph::build::{int, node, value};
use frostline_graph::onnx::data_type;
use frostline_tensor::{Data, Tensor};

/// The frozen layers with the least and the greatest element of every value that may be quantized as outputs.
#[derive(Debug, Clone)]
pub struct Calibration {
    model: Model,
    ranges: Ranges,
}

const LEAST: &str = "/least";
const GREATEST: &str = "/greatest";

impl Calibration {
    /// That of the layers of `model` up to the cut `freeze`.
    ///
    /// # Errors
    /// [`QuantizationError::Nothing`], [`QuantizationError::Opset`], [`QuantizationError::Graph`].
    pub fn new(model: &Model, freeze: &str) -> Result<Self, QuantizationError> {
        let layers = Layers::up_to(model, freeze)?;
        if layers.quantizable().next().is_none() {
            return Err(QuantizationError::Nothing);
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

    /// The network to run on calibration images: its outputs are `f32` scalars.
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

    /// The ranges over all batches.
    pub fn ranges(self) -> Ranges {
        self.ranges
    }
}
