use frostline_graph::build::initializer;
use frostline_graph::onnx::{NodeProto, TensorProto, data_type};
use frostline_graph::tensors::{from_proto, numbers};
use frostline_graph::{ChannelMap, GraphChanges, GraphError, Links, Model};
use frostline_tensor::Tensor;
use std::collections::HashMap;

/// First operator set in which `BatchNormalization` normalizes channels only and has no mode as an input.
const FIRST_OPSET: i64 = 9;

/// Folds operators that scale and shift channels by constants into the convolution or linear layer before
/// them: `BatchNormalization` in inference, and `Add`, `Sub`, `Mul` and `Div`.
///
/// `Conv`, `ConvTranspose` and `Gemm` with stored `f32` weights are changed if no other node and no output of
/// the network reads the value in between. Factors are combined in double precision and rounded once per
/// layer, so results are equal up to rounding. ONNX Runtime folds `f32` networks as well, but not if a change
/// of the number format has put casts in between.
///
/// # Errors
/// Returns the errors of [`Model::from_proto`], and [`GraphError::Weight`] if stored weights are invalid.
pub fn fold_batch_norms(model: &Model) -> Result<Model, GraphError> {
    if model.opset() < FIRST_OPSET {
        return Ok(model.clone());
    }
    let constants = model.constants();
    let links = Links::of_model(model);
    let mut changes = GraphChanges::default();
    for (index, node) in model.nodes().iter().enumerate() {
        let Some(layer) = StoredLayer::new(node, &constants) else {
            continue;
        };
        let mut map = ChannelMap::identity(layer.channels);
        let mut output = layer.output;
        let mut readers = Vec::new();
        while let Some(next) = layer.followed_by(output, &map, &links, &constants) {
            readers.push(next.index);
            map = next.map;
            output = next.output;
        }
        if readers.is_empty() {
            continue;
        }
        if let Some((folded, tensors)) = layer.mapped(&map, output)? {
            changes.replace(index, node, [folded]);
            changes.remove(readers);
            changes.constants.extend(tensors);
        }
    }
    if changes.is_empty() {
        return Ok(model.clone());
    }
    let graph = changes.applied_to(model.graph());
    Ok(model.with_graph(graph)?.without_unread())
}

/// Stored tensors by name.
type Constants<'a> = HashMap<&'a str, &'a TensorProto>;

/// Operator that can be folded into the layer before it.
struct Foldable<'a> {
    index: usize,
    output: &'a str,
    /// Accumulated scale and shift of the layer's output.
    map: ChannelMap,
}

/// Layer with stored weights.
struct StoredLayer<'a> {
    node: &'a NodeProto,
    output: &'a str,
    weight: &'a TensorProto,
    bias: Option<&'a TensorProto>,
    channels: usize,
    /// Number of axes of the output. Channels are on the second one.
    rank: usize,
}

impl<'a> StoredLayer<'a> {
    fn new(node: &'a NodeProto, constants: &Constants<'a>) -> Option<Self> {
        let weight = stored(node, 1, constants)?;
        let channels = match node.standard_operator()? {
            "Conv" => size(weight, 0)?,
            "ConvTranspose" => size(weight, 1)?.checked_mul(groups(node)?)?,
            "Gemm" if node.float("beta").unwrap_or(1.0) == 1.0 => size(weight, usize::from(!has_rows(node)))?,
            _ => return None,
        };
        let bias = match node.input_name(2) {
            Some(_) => Some(stored(node, 2, constants)?),
            None => None,
        };
        let layer = Self {
            node,
            output: node.output_name(0)?,
            weight,
            bias,
            channels,
            rank: weight.dims.len(),
        };
        let fits = bias.is_none_or(|bias| match node.op_type.as_str() {
            "Gemm" => layer.is_per_channel(bias),
            _ => bias.dims.len() == 1,
        });
        fits.then_some(layer)
    }

    /// Returns the only reader of `output` if it can be folded into this layer. The function `map` of the
    /// layer's original output gives `output`.
    fn followed_by(
        &self,
        output: &str,
        map: &ChannelMap,
        links: &Links<'a>,
        constants: &Constants<'a>,
    ) -> Option<Foldable<'a>> {
        let index = links.only_reader(output)?;
        let node = links.node(index)?;
        let normalizes = node.standard_operator() == Some("BatchNormalization");
        if normalizes && (node.int("training_mode").unwrap_or(0) != 0 || node.output_name(1).is_some()) {
            return None;
        }
        let map = map.clone().followed_by(node, output, |slot| {
            let constant: &TensorProto = constants.get(node.input_name(slot)?)?;
            match normalizes {
                true => values(constant).filter(|values| values.len() == self.channels),
                false => self.per_channel(constant),
            }
        })?;
        Some(Foldable {
            index,
            output: node.output_name(0)?,
            map,
        })
    }

    /// Returns true for a single element and for an element per channel of the output.
    fn is_per_channel(&self, tensor: &TensorProto) -> bool {
        let dims = &tensor.dims;
        let channels = i64::try_from(self.channels).unwrap_or(i64::MAX);
        // Shapes are aligned at the last axis.
        let Some(added) = self.rank.checked_sub(dims.len()) else {
            return false;
        };
        dims.iter()
            .enumerate()
            .all(|(axis, &dim)| dim == 1 || (added + axis == 1 && dim == channels))
    }

    fn per_channel(&self, tensor: &TensorProto) -> Option<Vec<f64>> {
        let values = values(tensor).filter(|_| self.is_per_channel(tensor))?;
        Some(self.spread(values))
    }

    /// Returns the layer with `map` applied to its output, now called `output`, and its stored tensors.
    /// Returns `None` if a weight is not finite.
    fn mapped(
        &self,
        map: &ChannelMap,
        output: &str,
    ) -> Result<Option<(NodeProto, [TensorProto; 2])>, GraphError> {
        let weight = from_proto(self.weight)?;
        let elements = numbers(weight.data()).unwrap_or_default();
        let inner: usize = weight.shape().dims().iter().skip(1).product();
        let elements = elements.into_iter().enumerate().map(|(index, value)| {
            let factor = map.scale.get(self.channel(index, inner)).copied();
            as_single(value * factor.unwrap_or(f64::NAN))
        });
        let elements: Vec<f32> = elements.collect();
        let biases = match self.bias {
            Some(bias) => values(bias).map(|values| self.spread(values)),
            None => Some(vec![0.0; self.channels]),
        };
        let scaled = biases
            .into_iter()
            .flatten()
            .zip(&map.scale)
            .map(|(bias, scale)| bias * scale);
        let biases: Vec<f32> = scaled
            .zip(&map.shift)
            .map(|(bias, shift)| as_single(bias + shift))
            .collect();
        let finite = elements.iter().chain(&biases).all(|value| value.is_finite());
        if !finite || biases.len() != self.channels {
            return Ok(None);
        }
        let tensors = [
            folded(output, "weight", weight.shape().dims().to_vec(), elements)?,
            folded(output, "bias", vec![self.channels], biases)?,
        ];
        let mut node = self.node.clone();
        node.input.truncate(1);
        node.input
            .extend(tensors.iter().map(|tensor| tensor.name.clone()));
        node.output = vec![output.to_owned()];
        Ok(Some((node, tensors)))
    }

    fn spread(&self, values: Vec<f64>) -> Vec<f64> {
        match values.as_slice() {
            &[common] => vec![common; self.channels],
            _ => values,
        }
    }

    /// Returns the channel of the weight at `index`, for `inner` weights per entry of the first axis.
    fn channel(&self, index: usize, inner: usize) -> usize {
        let row = index / inner.max(1);
        match self.node.op_type.as_str() {
            "Conv" => row,
            "ConvTranspose" => {
                let groups = groups(self.node).unwrap_or(1);
                let per_group = self.channels / groups;
                let rows_per_group = size(self.weight, 0).unwrap_or(1) / groups;
                let kernel = inner / per_group.max(1);
                row / rows_per_group.max(1) * per_group + index % inner.max(1) / kernel.max(1)
            }
            _ if has_rows(self.node) => row,
            _ => index % inner.max(1),
        }
    }
}

/// Returns the stored `f32` tensor in input `slot`.
fn stored<'a>(node: &NodeProto, slot: usize, constants: &Constants<'a>) -> Option<&'a TensorProto> {
    let tensor = *constants.get(node.input_name(slot)?)?;
    (tensor.data_type == data_type::FLOAT).then_some(tensor)
}

fn size(tensor: &TensorProto, axis: usize) -> Option<usize> {
    usize::try_from(*tensor.dims.get(axis)?).ok()
}

/// Creates the weight or the bias of the folded layer that computes `output`.
fn folded(output: &str, role: &str, dims: Vec<usize>, values: Vec<f32>) -> Result<TensorProto, GraphError> {
    let name = format!("{output}/folded_{role}");
    let tensor = Tensor::f32(dims, values).map_err(|error| GraphError::Weight {
        name: name.clone(),
        why: error.into(),
    })?;
    Ok(initializer(&name, &tensor))
}

/// Returns true if the weights of a `Gemm` have a row per channel.
fn has_rows(node: &NodeProto) -> bool {
    node.int("transB").unwrap_or(0) != 0
}

fn groups(node: &NodeProto) -> Option<usize> {
    let groups = usize::try_from(node.int("group").unwrap_or(1)).ok();
    groups.filter(|&groups| groups > 0)
}

fn values(tensor: &TensorProto) -> Option<Vec<f64>> {
    numbers(from_proto(tensor).ok()?.data())
}

#[allow(clippy::cast_possible_truncation)]
fn as_single(value: f64) -> f32 {
    value as f32
}
