//! Rewrites a network into a quantized network.

use crate::arithmetic::{ActivationScale, IntegerWeights, quantize_weights};
use crate::layers::{Layer, Layers};
use crate::{QuantizationError, Ranges, Scheme, WeightBits};
use frostline_graph::Model;
use frostline_graph::build::{int, node};
use frostline_graph::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use frostline_graph::tensors::{from_bytes, from_proto};
use frostline_tensor::Data;
use std::collections::{BTreeMap, HashMap};

/// Network with frozen layers in int8.
#[derive(Debug, Clone)]
pub struct Quantized {
    /// The whole network. Names and types of values do not change. Quantized values have up to 256 distinct
    /// elements.
    pub model: Model,
    /// Number of layers that compute in int8.
    pub quantized_layers: usize,
    /// Number of layers that can be quantized.
    pub layers: usize,
}

/// Quantizes the layers of `model` up to the cut `freeze` by `scheme`, with the calibrated `ranges`.
///
/// # Errors
/// Returns [`QuantizationError::NoRange`] or [`QuantizationError::NotFinite`] if a value has no finite range,
/// [`QuantizationError::NotFinite`] if a weight is not finite, [`QuantizationError::Opset`] if the operators
/// are too old, and [`QuantizationError::Graph`] if the network cannot be cut at `freeze`.
pub fn quantize(
    model: &Model,
    freeze: &str,
    ranges: &Ranges,
    scheme: &Scheme,
) -> Result<Quantized, QuantizationError> {
    let layers = Layers::up_to(model, freeze)?;
    let mut rewrite = Int8Rewrite {
        parameters: parameters(&layers.quantized_values(scheme), ranges)?,
        weights_precision: scheme.weights,
        input: model.input_name()?,
        renamed: HashMap::new(),
        nodes: Vec::with_capacity(model.nodes().len() * 3),
        weights: model.graph().initializer.clone(),
    };
    let chosen = layers
        .quantizable()
        .filter(|(output, _)| !scheme.in_f32.contains(*output));
    let chosen: HashMap<&str, Layer<'_>> = chosen.collect();
    rewrite.quantize_input();
    for node in model.nodes() {
        let layer = node.output_name(0).and_then(|output| chosen.get(output));
        rewrite.add(node, layer)?;
    }
    Ok(Quantized {
        quantized_layers: chosen.len(),
        layers: layers.quantizable().count(),
        // Drops the `f32` weights of quantized layers that no other node reads.
        model: model
            .with_graph(GraphProto {
                node: rewrite.nodes,
                initializer: rewrite.weights,
                ..model.graph().clone()
            })?
            .without_unread(),
    })
}

/// Scale and zero point, with the value that names the stored tensors. Values with the same range share the
/// tensors.
type Parameters<'a> = (&'a str, ActivationScale);

fn parameters<'a>(
    quantized: &BTreeMap<&'a str, &'a str>,
    ranges: &Ranges,
) -> Result<BTreeMap<&'a str, Parameters<'a>>, QuantizationError> {
    quantized
        .iter()
        .map(|(&value, &source)| {
            let range = ranges.get(source).ok_or_else(|| QuantizationError::NoRange {
                tensor: source.to_owned(),
            })?;
            if !(range.least.is_finite() && range.greatest.is_finite()) {
                return Err(QuantizationError::NotFinite {
                    tensor: source.to_owned(),
                });
            }
            Ok((value, (source, ActivationScale::from_range(range))))
        })
        .collect()
}

struct Int8Rewrite<'a> {
    parameters: BTreeMap<&'a str, Parameters<'a>>,
    weights_precision: WeightBits,
    input: &'a str,
    /// New input names for readers of renamed values.
    renamed: HashMap<&'a str, String>,
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
}

impl<'a> Int8Rewrite<'a> {
    /// Quantizes the network's input, which keeps its name.
    fn quantize_input(&mut self) {
        let Some(parameters) = self.parameters.get(self.input).copied() else {
            return;
        };
        let dequantized = format!("{}/dequantized", self.input);
        self.quantize(self.input, &dequantized, parameters, &NodeProto::default());
        self.renamed.insert(self.input, dequantized);
    }

    fn add(&mut self, node: &'a NodeProto, layer: Option<&Layer<'_>>) -> Result<(), QuantizationError> {
        let mut made = node.clone();
        for name in &mut made.input {
            if let Some(renamed) = self.renamed.get(name.as_str()) {
                name.clone_from(renamed);
            }
        }
        if let Some(layer) = layer {
            self.quantize_layer(&mut made, layer)?;
        }
        let quantized: Vec<(usize, &'a str, Parameters<'a>)> = node
            .output
            .iter()
            .enumerate()
            .filter_map(|(slot, name)| Some((slot, name.as_str(), *self.parameters.get(name.as_str())?)))
            .collect();
        for &(slot, name, _) in &quantized {
            if let Some(output) = made.output.get_mut(slot) {
                *output = format!("{name}/exact");
            }
        }
        self.nodes.push(made);
        for (_, name, parameters) in quantized {
            self.quantize(&format!("{name}/exact"), name, parameters, node);
        }
        Ok(())
    }

    /// Adds a `QuantizeLinear` and a `DequantizeLinear` from `from` to `to`. Both copy the metadata of the
    /// node `maker`, which identifies the module.
    fn quantize(&mut self, from: &str, to: &str, (source, affine): Parameters<'a>, maker: &NodeProto) {
        let integers = format!("{to}/integers");
        let scale = format!("{source}/scale");
        let zero_point = format!("{source}/zero_point");
        if !self.weights.iter().rev().any(|weight| weight.name == scale) {
            let bytes = affine.scale.to_le_bytes().to_vec();
            self.weights
                .push(from_bytes(&scale, data_type::FLOAT, vec![], bytes));
            let bytes = vec![affine.zero_point];
            self.weights
                .push(from_bytes(&zero_point, data_type::UINT8, vec![], bytes));
        }
        let quantize = node("QuantizeLinear", &[from, &scale, &zero_point], &[&integers]);
        let dequantize = node("DequantizeLinear", &[&integers, &scale, &zero_point], &[to]);
        let dequantize = dequantize.named(&format!("{to}/dequantize"));
        self.nodes.extend([quantize, dequantize].map(|node| NodeProto {
            metadata_props: maker.metadata_props.clone(),
            ..node
        }));
    }

    /// Replaces the weights and biases of a layer with integers.
    fn quantize_layer(&mut self, made: &mut NodeProto, layer: &Layer<'_>) -> Result<(), QuantizationError> {
        let Some((_, input)) = self.parameters.get(layer.input).copied() else {
            return Ok(());
        };
        let LayerWeights {
            weights,
            biases,
            channels,
            inner,
        } = LayerWeights::read(layer)?;
        let IntegerWeights {
            weights,
            scales,
            biases,
        } = quantize_weights(
            &weights,
            (channels, inner),
            &biases,
            input.scale,
            self.weights_precision,
        );
        let dims = layer.weight.dims.clone();
        let of = made.label().to_owned();
        let bytes: Vec<u8> = weights.iter().map(|weight| weight.cast_unsigned()).collect();
        let weight = format!("{of}/weight");
        let axis = i64::try_from(layer.axis).unwrap_or_default();
        self.dequantize(&weight, (data_type::INT8, dims, bytes), &scales, axis);
        let mut read = vec![weight];
        if !biases.is_empty() {
            let bias = format!("{of}/bias");
            let bytes: Vec<u8> = biases.iter().flat_map(|bias| bias.to_le_bytes()).collect();
            let scales: Vec<f32> = scales.iter().map(|scale| scale * input.scale).collect();
            let dims = vec![i64::try_from(channels).unwrap_or_default()];
            self.dequantize(&bias, (data_type::INT32, dims, bytes), &scales, 0);
            read.push(bias);
        }
        made.input.splice(1.., read);
        Ok(())
    }

    /// Stores integers and adds a `DequantizeLinear` with the output `name` and one scale per slice of
    /// `axis`.
    fn dequantize(
        &mut self,
        name: &str,
        (code, dims, bytes): (i32, Vec<i64>, Vec<u8>),
        scales: &[f32],
        axis: i64,
    ) {
        let [integers, scale, zero_point] =
            ["integers", "scale", "zero_point"].map(|part| format!("{name}/{part}"));
        let channels = vec![i64::try_from(scales.len()).unwrap_or_default()];
        let scale_bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        let width = if code == data_type::INT8 {
            size_of::<i8>()
        } else {
            size_of::<i32>()
        };
        self.weights.extend([
            from_bytes(&integers, code, dims, bytes),
            from_bytes(&scale, data_type::FLOAT, channels.clone(), scale_bytes),
            from_bytes(&zero_point, code, channels, vec![0; width * scales.len()]),
        ]);
        let node = node("DequantizeLinear", &[&integers, &scale, &zero_point], &[name]);
        self.nodes.push(node.with([int("axis", axis)]));
    }
}

/// Weights with the shape `[.., channels, inner]`.
struct LayerWeights {
    weights: Vec<f32>,
    /// Either one per channel or empty.
    biases: Vec<f32>,
    channels: usize,
    inner: usize,
}

impl LayerWeights {
    fn read(layer: &Layer<'_>) -> Result<Self, QuantizationError> {
        let weights = numbers(layer.weight)?;
        let biases = layer.bias.map(numbers).transpose()?.unwrap_or_default();
        if !weights.iter().chain(&biases).all(|number| number.is_finite()) {
            return Err(QuantizationError::NotFinite {
                tensor: layer.weight.name.clone(),
            });
        }
        let dims = &layer.weight.dims;
        Ok(Self {
            weights,
            biases,
            channels: elements(dims.get(layer.axis..=layer.axis).unwrap_or_default()),
            inner: elements(dims.get(layer.axis + 1..).unwrap_or_default()),
        })
    }
}

/// Returns the numbers of an `f32` tensor, and none for other types.
fn numbers(tensor: &TensorProto) -> Result<Vec<f32>, QuantizationError> {
    match from_proto(tensor)?.data() {
        Data::F32(numbers) => Ok(numbers.clone()),
        _ => Ok(Vec::new()),
    }
}

fn elements(dims: &[i64]) -> usize {
    let sizes = dims.iter().map(|&dim| usize::try_from(dim).unwrap_or(0));
    sizes.product()
}
