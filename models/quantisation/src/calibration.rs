use crate::layers::Layers;
use crate::{QuantisationError, Range, Ranges, Recipe, WeightBits};
use frostline_graph::Model;
use frostline_graph::build::{int, node, value};
use frostline_graph::onnx::{GraphProto, ModelProto, data_type};
use frostline_tensor::{Data, Tensor};

/// The frozen layers with the least and the greatest element of every value that may be rounded as outputs.
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
    /// [`QuantisationError::Nothing`], [`QuantisationError::Opset`], [`QuantisationError::Graph`].
    pub fn new(model: &Model, freeze: &str) -> Result<Self, QuantisationError> {
        let layers = Layers::up_to(model, freeze)?;
        if layers.kernels().next().is_none() {
            return Err(QuantisationError::Nothing);
        }
        let watched = layers.rounded(&Recipe::new(WeightBits::Eight));
        let proto = model.slice(None, Some(freeze))?.into_proto();
        let mut graph = proto.graph.clone().unwrap_or_default();
        graph.output.clear();
        for name in watched.into_keys() {
            for (operator, end) in [("ReduceMin", LEAST), ("ReduceMax", GREATEST)] {
                let output = format!("{name}{end}");
                graph
                    .node
                    .push(node(operator, &[name], &[&output]).with([int("keepdims", 0)]));
                graph.output.push(value(&output, data_type::FLOAT, &[]));
            }
        }
        Ok(Self {
            model: with_graph(proto, graph)?,
            ranges: Ranges::default(),
        })
    }

    /// The network to run on calibration samples.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Takes in what [`Self::model`] gave for a batch.
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

fn with_graph(proto: ModelProto, graph: GraphProto) -> Result<Model, QuantisationError> {
    Ok(Model::from_proto(ModelProto {
        graph: Some(graph),
        ..proto
    })?)
}
