//! The network that rounds.

use crate::layers::{Kernel, Layers};
use crate::rounding::{Affine, RoundedWeights, round_weights};
use crate::{QuantisationError, Ranges, Recipe};
use frostline_graph::Model;
use frostline_graph::build::{int, node};
use frostline_graph::onnx::{GraphProto, ModelProto, NodeProto, TensorProto, data_type};
use frostline_graph::tensors::from_proto;
use frostline_tensor::Data;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A network whose frozen layers compute in int8.
#[derive(Debug, Clone)]
pub struct Quantised {
    /// The whole network. Its values have the names they had; rounded ones hold what their integers stand for.
    pub model: Model,
    /// Layers that compute in int8.
    pub layers: usize,
    /// Layers with weights in all.
    pub of: usize,
}

/// `model` with its layers up to the cut `freeze` rounded by `recipe`, over `ranges`.
///
/// # Errors
/// [`QuantisationError`].
pub fn quantise(
    model: &Model,
    freeze: &str,
    ranges: &Ranges,
    recipe: &Recipe,
) -> Result<Quantised, QuantisationError> {
    let layers = Layers::up_to(model, freeze)?;
    let mut rewrite = Rewrite {
        roundings: roundings(&layers.rounded(recipe), ranges)?,
        input: model.input_name()?,
        renamed: HashMap::new(),
        nodes: Vec::with_capacity(model.nodes().len() * 3),
        weights: model.graph().initializer.clone(),
    };
    let kernels = layers
        .kernels()
        .filter(|(output, _)| !recipe.in_f32.contains(*output));
    let kernels: HashMap<&str, Kernel<'_>> = kernels.collect();
    rewrite.round_input();
    for node in model.nodes() {
        let kernel = node.output_name(0).and_then(|output| kernels.get(output));
        rewrite.add(node, kernel, recipe)?;
    }
    let (count, of) = (kernels.len(), layers.kernels().count());
    rewrite.drop_replaced(&kernels);
    let proto = model.clone().into_proto();
    let graph = GraphProto {
        node: rewrite.nodes,
        initializer: rewrite.weights,
        ..proto.graph.unwrap_or_default()
    };
    Ok(Quantised {
        model: Model::from_proto(ModelProto {
            graph: Some(graph),
            ..proto
        })?,
        layers: count,
        of,
    })
}

/// How a value is rounded, and the value after which scale and zero point are called.
type Rounding<'a> = (&'a str, Affine);

fn roundings<'a>(
    rounded: &BTreeMap<&'a str, &'a str>,
    ranges: &Ranges,
) -> Result<BTreeMap<&'a str, Rounding<'a>>, QuantisationError> {
    let rounding = |(&value, &source): (&&'a str, &&'a str)| {
        let tensor = || source.to_owned();
        let range = ranges
            .get(source)
            .ok_or_else(|| QuantisationError::NoRange { tensor: tensor() })?;
        if !(range.least.is_finite() && range.greatest.is_finite()) {
            return Err(QuantisationError::NotFinite { tensor: tensor() });
        }
        Ok((value, (source, Affine::over(range))))
    };
    rounded.iter().map(rounding).collect()
}

/// A network in the making.
struct Rewrite<'a> {
    roundings: BTreeMap<&'a str, Rounding<'a>>,
    input: &'a str,
    /// What is read in place of a value.
    renamed: HashMap<&'a str, String>,
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
}

impl<'a> Rewrite<'a> {
    /// Rounds the network's input, which keeps its name.
    fn round_input(&mut self) {
        let Some(rounding) = self.roundings.get(self.input).copied() else {
            return;
        };
        let rounded = format!("{}/rounded", self.input);
        self.round(self.input, &rounded, rounding, &NodeProto::default());
        self.renamed.insert(self.input, rounded);
    }

    /// Drops the weights of rounded layers that no other reads.
    fn drop_replaced(&mut self, kernels: &HashMap<&str, Kernel<'_>>) {
        let read: HashSet<&str> = self
            .nodes
            .iter()
            .flat_map(|node| &node.input)
            .map(String::as_str)
            .collect();
        let replaced = kernels
            .values()
            .flat_map(|kernel| [Some(kernel.weight), kernel.bias])
            .flatten();
        let replaced = replaced
            .map(|weight| weight.name.as_str())
            .filter(|name| !read.contains(name));
        let replaced: HashSet<&str> = replaced.collect();
        self.weights
            .retain(|weight| !replaced.contains(weight.name.as_str()));
    }

    fn add(
        &mut self,
        node: &'a NodeProto,
        kernel: Option<&Kernel<'_>>,
        recipe: &Recipe,
    ) -> Result<(), QuantisationError> {
        let mut made = node.clone();
        for name in &mut made.input {
            if let Some(renamed) = self.renamed.get(name.as_str()) {
                name.clone_from(renamed);
            }
        }
        if let Some(kernel) = kernel {
            self.round_kernel(&mut made, kernel, recipe)?;
        }
        let rounded: Vec<(usize, &'a str, Rounding<'a>)> = node
            .output
            .iter()
            .enumerate()
            .filter_map(|(slot, name)| Some((slot, name.as_str(), *self.roundings.get(name.as_str())?)))
            .collect();
        for &(slot, name, _) in &rounded {
            if let Some(output) = made.output.get_mut(slot) {
                *output = format!("{name}/exact");
            }
        }
        self.nodes.push(made);
        for (_, name, rounding) in rounded {
            self.round(&format!("{name}/exact"), name, rounding, node);
        }
        Ok(())
    }

    /// Rounds `from` to `to`; whoever reads `to` knows it by the notes of its maker.
    fn round(&mut self, from: &str, to: &str, (source, affine): Rounding<'a>, maker: &NodeProto) {
        let integers = format!("{to}/integers");
        let (scale, zero_point) = (format!("{source}/scale"), format!("{source}/zero_point"));
        if !self.weights.iter().rev().any(|weight| weight.name == scale) {
            self.weights
                .push(vector(&scale, data_type::FLOAT, &[], &affine.scale.to_le_bytes()));
            self.weights
                .push(vector(&zero_point, data_type::UINT8, &[], &[affine.zero_point]));
        }
        let quantise = node("QuantizeLinear", &[from, &scale, &zero_point], &[&integers]);
        let dequantise = node("DequantizeLinear", &[&integers, &scale, &zero_point], &[to]);
        let dequantise = dequantise.named(&format!("{to}/dequantise"));
        self.nodes.extend([quantise, dequantise].map(|node| NodeProto {
            metadata_props: maker.metadata_props.clone(),
            ..node
        }));
    }

    /// Has a layer read rounded weights.
    fn round_kernel(
        &mut self,
        made: &mut NodeProto,
        kernel: &Kernel<'_>,
        recipe: &Recipe,
    ) -> Result<(), QuantisationError> {
        let Some((_, input)) = self.roundings.get(kernel.input).copied() else {
            return Ok(());
        };
        let Numbers {
            weights,
            biases,
            channels,
            inner,
        } = Numbers::read(kernel)?;
        let RoundedWeights {
            weights,
            scales,
            biases,
        } = round_weights(&weights, (channels, inner), &biases, input.scale, recipe.weights);
        let dims = &kernel.weight.dims;
        let of = made.label().to_owned();
        let bytes: Vec<u8> = weights.iter().map(|weight| weight.cast_unsigned()).collect();
        let weight = format!("{of}/weight");
        let axis = i64::try_from(kernel.axis).unwrap_or_default();
        self.dequantise(&weight, (data_type::INT8, dims, &bytes), &scales, axis);
        let mut read = vec![weight];
        if !biases.is_empty() {
            let bias = format!("{of}/bias");
            let bytes: Vec<u8> = biases.iter().flat_map(|bias| bias.to_le_bytes()).collect();
            let scales: Vec<f32> = scales.iter().map(|scale| scale * input.scale).collect();
            self.dequantise(
                &bias,
                (
                    data_type::INT32,
                    &[i64::try_from(channels).unwrap_or_default()],
                    &bytes,
                ),
                &scales,
                0,
            );
            read.push(bias);
        }
        made.input.splice(1.., read);
        Ok(())
    }

    /// Stores integers and makes `name` of them, with a scale for each slice of `axis`.
    fn dequantise(
        &mut self,
        name: &str,
        (code, dims, bytes): (i32, &[i64], &[u8]),
        scales: &[f32],
        axis: i64,
    ) {
        let [integers, scale, zero_point] =
            ["integers", "scale", "zero_point"].map(|part| format!("{name}/{part}"));
        let channels = [i64::try_from(scales.len()).unwrap_or_default()];
        let scale_bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        let width = if code == data_type::INT8 {
            size_of::<i8>()
        } else {
            size_of::<i32>()
        };
        self.weights.extend([
            vector(&integers, code, dims, bytes),
            vector(&scale, data_type::FLOAT, &channels, &scale_bytes),
            vector(&zero_point, code, &channels, &vec![0; width * scales.len()]),
        ]);
        let node = node("DequantizeLinear", &[&integers, &scale, &zero_point], &[name]);
        self.nodes.push(node.with([int("axis", axis)]));
    }
}

/// A layer's weights, of `[.., channels, inner]`.
struct Numbers {
    weights: Vec<f32>,
    /// One for each channel, or none.
    biases: Vec<f32>,
    channels: usize,
    inner: usize,
}

impl Numbers {
    fn read(kernel: &Kernel<'_>) -> Result<Self, QuantisationError> {
        let numbers = |tensor: &TensorProto| -> Result<Vec<f32>, QuantisationError> {
            match from_proto(tensor)?.data() {
                Data::F32(elements) => Ok(elements.clone()),
                _ => Ok(Vec::new()),
            }
        };
        let weights = numbers(kernel.weight)?;
        let biases = kernel.bias.map(numbers).transpose()?.unwrap_or_default();
        if !weights.iter().chain(&biases).all(|number| number.is_finite()) {
            return Err(QuantisationError::NotFinite {
                tensor: kernel.weight.name.clone(),
            });
        }
        let dims = &kernel.weight.dims;
        let size = |dims: &[i64]| {
            let sizes = dims.iter().map(|&dim| usize::try_from(dim).unwrap_or(0));
            sizes.product()
        };
        Ok(Self {
            weights,
            biases,
            channels: size(dims.get(kernel.axis..=kernel.axis).unwrap_or_default()),
            inner: size(dims.get(kernel.axis + 1..).unwrap_or_default()),
        })
    }
}

fn vector(name: &str, data_type: i32, dims: &[i64], bytes: &[u8]) -> TensorProto {
    TensorProto {
        name: name.into(),
        data_type,
        dims: dims.to_vec(),
        raw_data: bytes.to_vec().into(),
        ..TensorProto::default()
    }
}
