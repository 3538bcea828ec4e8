//! Selects the frozen layers and values that can be quantized.

use crate::{QuantizationError, Scheme};
use frostline_graph::Model;
use frostline_graph::onnx::{NodeProto, TensorProto, data_type};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The oldest operator set with a scale per channel.
const OLDEST_OPSET: i64 = 13;

/// Layers up to the cut `freeze`.
pub(crate) struct Layers<'a> {
    freeze: &'a str,
    nodes: Vec<&'a NodeProto>,
    weights: HashMap<&'a str, &'a TensorProto>,
    readers: HashMap<&'a str, Vec<&'a NodeProto>>,
    /// `f32` values that depend on the network's input.
    data: HashSet<&'a str>,
}

/// A layer with stored weights.
pub(crate) struct Layer<'a> {
    pub(crate) input: &'a str,
    pub(crate) weight: &'a TensorProto,
    pub(crate) bias: Option<&'a TensorProto>,
    /// The axis of `weight` with the output channels.
    pub(crate) axis: usize,
    /// True if engines compute the layer in integers only when its result is quantized as well.
    quantizes_result: bool,
}

impl<'a> Layers<'a> {
    pub(crate) fn up_to(model: &'a Model, freeze: &'a str) -> Result<Self, QuantizationError> {
        let found = model.opset();
        if found < OLDEST_OPSET {
            return Err(QuantizationError::Opset { found });
        }
        let part = model.slice(None, Some(freeze))?;
        let inside = outputs_of(&part);
        let nodes = model.nodes().iter();
        let nodes: Vec<&NodeProto> = nodes
            .filter(|node| node.output.iter().any(|name| inside.contains(name.as_str())))
            .collect();
        let mut readers: HashMap<&str, Vec<&NodeProto>> = HashMap::new();
        for node in &nodes {
            for name in &node.input {
                readers.entry(name).or_default().push(node);
            }
        }
        // Types do not depend on the batch size.
        let shapes = model.shapes(1)?;
        let is_number = |name: &str| {
            shapes
                .get(name)
                .is_some_and(|value| value.data_type == data_type::FLOAT)
        };
        let mut data: HashSet<&str> = HashSet::from([model.input_name()?]);
        for node in &nodes {
            if node.input.iter().any(|name| data.contains(name.as_str())) {
                data.extend(
                    node.output
                        .iter()
                        .map(String::as_str)
                        .filter(|name| is_number(name)),
                );
            }
        }
        Ok(Self {
            freeze,
            nodes,
            weights: model.constants(),
            readers,
            data,
        })
    }

    /// Returns the quantizable layers with the names of the outputs.
    pub(crate) fn quantizable(&self) -> impl Iterator<Item = (&'a str, Layer<'a>)> {
        let layers = self
            .nodes
            .iter()
            .filter_map(|&node| Some((node.output_name(0)?, self.layer(node)?)));
        layers.collect::<Vec<_>>().into_iter()
    }

    /// Returns `node` as a layer, if it is one with stored `f32` weights.
    pub(crate) fn layer(&self, node: &'a NodeProto) -> Option<Layer<'a>> {
        let input = self.data(node.input_name(0)?)?;
        let weight = self.number(node.input_name(1)?)?;
        let bias = match node.input_name(2) {
            None => None,
            Some(name) => Some(self.number(name)?),
        };
        let factors = ["alpha", "beta"].map(|name| node.float(name).unwrap_or(1.0));
        let (axis, quantizes_result) = match node.standard_operator()? {
            "Conv" => (0, true),
            "Gemm" if node.int("transA").unwrap_or(0) == 0 && factors == [1.0, 1.0] => {
                (usize::from(node.int("transB").unwrap_or(0) == 0), false)
            }
            "MatMul" if weight.dims.len() == 2 => (1, false),
            _ => return None,
        };
        let channels = weight.dims.get(axis)?;
        let fits = bias.is_none_or(|bias| bias.dims == [*channels]);
        fits.then_some(Layer {
            input,
            weight,
            bias,
            axis,
            quantizes_result,
        })
    }

    /// Returns the values that `scheme` quantizes, mapped to the value with the range to use.
    pub(crate) fn quantized_values(&self, scheme: &Scheme) -> BTreeMap<&'a str, &'a str> {
        let mut quantized = BTreeMap::new();
        for &node in &self.nodes {
            let Some(output) = node.output_name(0) else {
                continue;
            };
            let Some(layer) = self.layer(node).filter(|_| !scheme.in_f32.contains(output)) else {
                continue;
            };
            quantized.insert(layer.input, layer.input);
            if layer.quantizes_result {
                let result = self.result(node, output);
                quantized.insert(result, result);
            }
        }
        for &node in self.nodes.iter().filter(|node| preserves_integers(node)) {
            let ends = node.input_name(0).zip(node.output_name(0));
            if let Some((input, output)) = ends
                && let Some(&range) = quantized.get(input)
            {
                quantized.insert(output, range);
            }
        }
        quantized
    }

    /// Returns the value to quantize after `node`: its `output`, or the output of the activation function
    /// that is its only reader, because engines fuse the two.
    fn result(&self, node: &'a NodeProto, output: &'a str) -> &'a str {
        let readers = self.readers.get(output).map_or(&[][..], Vec::as_slice);
        match readers {
            [only] if output != self.freeze && node.output.len() == 1 => match only.standard_operator() {
                Some("Relu" | "Clip") if only.input_name(0) == Some(output) => {
                    only.output_name(0).unwrap_or(output)
                }
                _ => output,
            },
            _ => output,
        }
    }

    fn data(&self, name: &'a str) -> Option<&'a str> {
        self.data.get(name).copied()
    }

    fn number(&self, name: &str) -> Option<&'a TensorProto> {
        let weight = self.weights.get(name).copied()?;
        (weight.data_type == data_type::FLOAT).then_some(weight)
    }
}

pub(crate) fn outputs_of(model: &Model) -> HashSet<&str> {
    let outputs = model.nodes().iter().flat_map(|node| &node.output);
    outputs.map(String::as_str).collect()
}

/// Returns true for supported operators that only move or select elements, so that integers stay valid.
fn preserves_integers(node: &NodeProto) -> bool {
    matches!(
        node.standard_operator(),
        Some("MaxPool" | "Reshape" | "Flatten" | "Transpose" | "Squeeze" | "Unsqueeze")
    )
}
