//! Conversion of networks to f16.

use frostline_fusion::fold_batch_norms;
use frostline_graph::build::{cast, float, initializer, node};
use frostline_graph::onnx::{GraphProto, NodeProto, TensorProto, data_type};
use frostline_graph::tensors::{from_bytes, from_proto};
use frostline_graph::{GraphError, Model, Shapes, drop_unread, read_names};
use frostline_tensor::{Data, Precision, Tensor, exceeds_f16, to_f16 as halves_of};
use std::collections::{HashMap, HashSet};

/// Operators that always compute in f16. They need most of the time, and engines accumulate their products in
/// f32.
const PRODUCTS: &[&str] = &["Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"];

/// Operators with the type of the inputs, in addition to those that only move elements. Engines normalize in f32 also if
/// the inputs are f16.
///
/// All operators that are in neither list remain in f32: powers, roots, exponentials and sums over axes lose
/// accuracy in f16, quantization requires f32, and GPUs have no f16 kernels for rare operators.
const FOLLOWERS: &[&str] = &[
    "Abs",
    "Add",
    "AveragePool",
    "BatchNormalization",
    "Ceil",
    "Clip",
    "Concat",
    "DepthToSpace",
    "Div",
    "Dropout",
    "Elu",
    "Erf",
    "Expand",
    "Floor",
    "Gather",
    "Gelu",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "HardSigmoid",
    "HardSwish",
    "InstanceNormalization",
    "LayerNormalization",
    "LeakyRelu",
    "LogSoftmax",
    "Max",
    "MaxPool",
    "Min",
    "Mul",
    "Neg",
    "PRelu",
    "Pad",
    "ReduceMax",
    "ReduceMin",
    "Relu",
    "Resize",
    "Selu",
    "Sigmoid",
    "Slice",
    "Softmax",
    "Softsign",
    "SpaceToDepth",
    "Split",
    "Sub",
    "Sum",
    "Tanh",
    "Tile",
    "Where",
];

/// Operators in [`FOLLOWERS`] that compute in f16 if any input is f16. They join branches, so otherwise a
/// single branch in f32 would convert all following layers to f32.
const JOINS: &[&str] = &["Add", "Concat", "Sum"];

/// Operators for which constants beyond the range of f16 may be clamped, for example attention masks.
const BOUNDED: &[&str] = &[
    "Add", "Clip", "Concat", "Max", "Min", "Pad", "Sub", "Sum", "Where",
];

/// Operators that accept any type and whose results do not depend on it.
const UNTYPED: &[&str] = &["Cast", "Shape", "Size"];

/// Largest finite number in f16.
const LARGEST: f32 = 65_504.0;

/// Smallest positive number that f16 represents with 11 bits.
const SMALLEST_NORMAL: f32 = 1.0 / 16_384.0;

/// Oldest operator set in which the bounds of `Clip` are inputs.
const CLIP_INPUTS: i64 = 11;

/// Returns the network that an engine executes for `precision`. Only f16 changes the network, because engines
/// support the other precisions themselves.
///
/// # Errors
/// Returns the errors of [`fold_batch_norms`] and [`to_f16`].
pub fn for_precision(model: Model, precision: Precision) -> Result<Model, GraphError> {
    match precision {
        Precision::Full | Precision::Tf32 => Ok(model),
        // Folded in f32, weights are rounded once.
        Precision::F16 => to_f16(&fold_batch_norms(&model)?),
    }
}

/// Converts weights and activations of `model` to f16. Inputs and outputs of the network keep their names and
/// types.
///
/// Operators that lose accuracy in f16 or require f32 remain in f32, with a `Cast` where the type changes.
/// Finite constants beyond ±65,504 are clamped, or remain in f32 if they are factors or weights. Networks that
/// already contain values in f16 or bf16 are returned unchanged.
///
/// # Errors
/// Returns [`GraphError::Weight`] if a weight is invalid, and the errors of [`Model::shapes`].
pub fn to_f16(model: &Model) -> Result<Model, GraphError> {
    let shapes = model.shapes(1)?;
    let is_half = |name: &str| {
        let known = shapes.get(name);
        known.is_some_and(|value| matches!(value.data_type, data_type::FLOAT16 | data_type::BFLOAT16))
    };
    let graph = model.graph();
    let inputs = graph.input.iter().map(|input| &input.name);
    let stored = graph.initializer.iter().map(|weight| &weight.name);
    let made = graph.node.iter().flat_map(|node| &node.output);
    if inputs.chain(stored).chain(made).any(|name| is_half(name)) {
        return Ok(model.clone());
    }
    let mut rewrite = HalfRewrite::new(model, shapes);
    let mut is_changed = false;
    for node in model.nodes() {
        let converts = rewrite.converts(node)?;
        is_changed |= converts;
        match converts {
            true => rewrite.add_in_half(node)?,
            false => rewrite.add_in_single(node),
        }
    }
    if !is_changed {
        return Ok(model.clone());
    }
    for output in &graph.output {
        rewrite.single(&output.name);
    }
    let mut converted = GraphProto {
        node: rewrite.nodes,
        initializer: rewrite.weights,
        // The types of inner values have changed.
        value_info: Vec::new(),
        ..graph.clone()
    };
    drop_unread(&mut converted);
    // Files may list weights as inputs. Without the weight, such an input would be required.
    let left: HashSet<&str> = converted
        .initializer
        .iter()
        .map(|weight| weight.name.as_str())
        .collect();
    let weights = model.initializers();
    converted
        .input
        .retain(|input| !weights.contains_key(input.name.as_str()) || left.contains(input.name.as_str()));
    model.with_graph(converted)
}

/// The converted graph under construction. The f32 form of a value keeps the name of the value, and the f16
/// form has the name with a suffix. Either form is added when a node first reads it.
struct HalfRewrite<'a> {
    opset: i64,
    shapes: Shapes,
    /// Suffix of the names of f16 forms.
    suffix: String,
    /// Stored f32 tensors by name: weights, outputs of `Constant`, and copies by `Identity`. The text is the
    /// name of the original tensor.
    constants: HashMap<&'a str, (&'a str, &'a TensorProto)>,
    /// Values that depend on the elements of the network's input.
    data: HashSet<&'a str>,
    /// Values whose preferred form is f16.
    preferred: HashSet<&'a str>,
    /// Names of the f16 forms that exist.
    halves: HashMap<&'a str, String>,
    /// Values without an f32 form.
    only_half: HashSet<&'a str>,
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
}

impl<'a> HalfRewrite<'a> {
    fn new(model: &'a Model, shapes: Shapes) -> Self {
        let graph = model.graph();
        let inputs: HashSet<&str> = model.inputs().map(|input| input.name.as_str()).collect();
        let mut constants: HashMap<&str, (&str, &TensorProto)> = HashMap::new();
        for weight in &graph.initializer {
            if weight.data_type == data_type::FLOAT {
                constants.insert(&weight.name, (&weight.name, weight));
            }
        }
        let mut data = inputs.clone();
        for node in model.nodes() {
            let output = node.output_name(0).unwrap_or_default();
            match node.standard_operator() {
                Some("Constant") => {
                    let values = node.attribute.iter().filter_map(|attribute| attribute.t.as_ref());
                    let floats = values.filter(|value| value.data_type == data_type::FLOAT);
                    constants.extend(floats.map(|value| (output, (output, value))));
                }
                Some("Identity") => {
                    let copied = node.input_name(0).and_then(|name| constants.get(name)).copied();
                    constants.extend(copied.map(|original| (output, original)));
                }
                // Results depend on the shape only.
                Some("Shape" | "Size") => continue,
                _ => {}
            }
            if read_names(node).into_iter().any(|name| data.contains(name)) {
                data.extend(node.output.iter().map(String::as_str));
            }
        }
        let mut suffix = "/f16".to_owned();
        let made = graph
            .node
            .iter()
            .flat_map(|node| &node.output)
            .map(String::as_str);
        let stored = graph.initializer.iter().map(|weight| weight.name.as_str());
        let names: Vec<&str> = made.chain(stored).chain(inputs.iter().copied()).collect();
        while names.iter().any(|name| name.ends_with(&suffix)) {
            suffix.push('_');
        }
        Self {
            opset: model.opset(),
            shapes,
            suffix,
            constants,
            data,
            preferred: inputs,
            halves: HashMap::new(),
            only_half: HashSet::new(),
            nodes: Vec::with_capacity(graph.node.len() + 2),
            weights: graph.initializer.clone(),
        }
    }

    /// Returns true if `node` computes in f16.
    fn converts(&self, node: &'a NodeProto) -> Result<bool, GraphError> {
        let Some(operator) = node.standard_operator() else {
            return Ok(false);
        };
        let is_product = PRODUCTS.contains(&operator);
        let follows = FOLLOWERS.contains(&operator) || node.rearranges();
        if !is_product && !follows || !self.has_types(node) {
            return Ok(false);
        }
        let operands: Vec<&str> = typed_inputs(node)
            .filter(|name| self.is_single_precision(name))
            .collect();
        let data = operands.iter().filter(|name| self.data.contains(**name));
        // A flag per operand that depends on the network's input.
        let preferred: Vec<bool> = data.map(|name| self.preferred.contains(*name)).collect();
        let converts = !preferred.is_empty()
            && (is_product
                || !preferred.contains(&false)
                || JOINS.contains(&operator) && preferred.contains(&true));
        if !converts {
            return Ok(false);
        }
        for (_, constant) in operands.into_iter().filter_map(|name| self.constants.get(name)) {
            if !fits(constant, BOUNDED.contains(&operator))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if the types of all inputs and outputs are known and the only floating-point type is f32.
    fn has_types(&self, node: &NodeProto) -> bool {
        let names = node
            .input
            .iter()
            .chain(&node.output)
            .filter(|name| !name.is_empty());
        // Further results, such as the statistics of a normalization, do not have the type of the input.
        let further = node.output.iter().skip(1).filter(|_| node.op_type != "Split");
        names.into_iter().all(|name| {
            let code = self.shapes.get(name).map(|value| value.data_type);
            code.is_some_and(|code| code == data_type::FLOAT || !data_type::is_float(code))
        }) && node
            .output_name(0)
            .is_some_and(|name| self.is_single_precision(name))
            && !further.into_iter().any(|name| self.is_single_precision(name))
    }

    fn is_single_precision(&self, name: &str) -> bool {
        let value = self.shapes.get(name);
        value.is_some_and(|value| value.data_type == data_type::FLOAT)
    }

    fn add_in_half(&mut self, original: &'a NodeProto) -> Result<(), GraphError> {
        let mut made = original.clone();
        let typed = typed_slots(original);
        let is_bounded = BOUNDED.contains(&original.op_type.as_str());
        for (slot, name) in original.input.iter().enumerate() {
            let is_read = !name.is_empty() && self.is_single_precision(name);
            let form = match is_read && slot < typed {
                true => self.half(name, is_bounded)?,
                false => {
                    self.single(name);
                    name.clone()
                }
            };
            if let Some(input) = made.input.get_mut(slot) {
                *input = form;
            }
        }
        for output in &mut made.output {
            if self.is_single_precision(output) {
                output.push_str(&self.suffix);
            }
        }
        for (name, form) in original.output.iter().zip(&made.output) {
            if name != form {
                self.halves.insert(name, form.clone());
                self.only_half.insert(name);
                self.preferred.insert(name);
            }
        }
        self.nodes.push(made);
        Ok(())
    }

    fn add_in_single(&mut self, original: &'a NodeProto) {
        let mut made = original.clone();
        let is_untyped = original
            .standard_operator()
            .is_some_and(|operator| UNTYPED.contains(&operator));
        for name in &mut made.input {
            let half = self.halves.get(name.as_str()).filter(|_| is_untyped);
            if let Some(half) = half.filter(|_| self.only_half.contains(name.as_str())) {
                name.clone_from(half);
            }
        }
        if !is_untyped {
            // Includes the values that the bodies of control flow read.
            for name in read_names(original) {
                self.single(name);
            }
        }
        self.nodes.push(made);
    }

    /// Adds the f32 form of a value if it does not exist.
    fn single(&mut self, name: &str) {
        if self.only_half.remove(name)
            && let Some(half) = self.halves.get(name).cloned()
        {
            self.cast(&half, name, data_type::FLOAT);
        }
    }

    /// Returns the name of the f16 form of a value, which is added if it does not exist. `is_bounded` allows to
    /// clamp a computed constant.
    fn half(&mut self, name: &'a str, is_bounded: bool) -> Result<String, GraphError> {
        if let Some(half) = self.halves.get(name) {
            return Ok(half.clone());
        }
        let half = match self.constants.get(name).copied() {
            Some((original, tensor)) => {
                let half = format!("{original}{}", self.suffix);
                if self.halves.insert(original, half.clone()).is_none() {
                    self.weights.push(in_f16(&half, tensor)?);
                }
                half
            }
            None => {
                let half = format!("{name}{}", self.suffix);
                let from = match is_bounded && !self.data.contains(name) {
                    true => self.clamped(name),
                    false => name.to_owned(),
                };
                self.cast(&from, &half, data_type::FLOAT16);
                half
            }
        };
        self.halves.insert(name, half.clone());
        Ok(half)
    }

    /// Adds a `Clip` of a computed constant, for example an attention mask, and returns the name of the
    /// result. Engines fold such constants when they open a session.
    fn clamped(&mut self, name: &str) -> String {
        let clamped = format!("{name}{}/clamped", self.suffix);
        let mut clip = node("Clip", &[name], &[&clamped]);
        if self.opset < CLIP_INPUTS {
            clip = clip.with([float("min", -LARGEST), float("max", LARGEST)]);
        } else {
            for (part, bound) in [("least", -LARGEST), ("greatest", LARGEST)] {
                let bound_name = format!("{clamped}/{part}");
                let bytes = bound.to_le_bytes().to_vec();
                self.weights
                    .push(from_bytes(&bound_name, data_type::FLOAT, vec![], bytes));
                clip.input.push(bound_name);
            }
        }
        self.nodes.push(clip);
        clamped
    }

    fn cast(&mut self, from: &str, to: &str, code: i32) {
        self.nodes
            .push(cast(from, to, code).named(&format!("{from} to {to}")));
    }
}

/// Returns the number of leading inputs with the type of the result. `Resize` reads f32 scales, and `Dropout`
/// reads an f32 ratio.
fn typed_slots(node: &NodeProto) -> usize {
    match node.op_type.as_str() {
        "Dropout" | "Resize" => 1,
        _ => node.input.len(),
    }
}

fn typed_inputs(node: &NodeProto) -> impl Iterator<Item = &str> {
    let inputs = node.input.iter().take(typed_slots(node));
    inputs.map(String::as_str).filter(|name| !name.is_empty())
}

/// Returns true if f16 represents a constant with sufficient accuracy. Numbers beyond the range do not fit
/// unless they may be clamped. Small elements of a weight may become zero, but a scalar is a factor or a
/// summand of all elements.
fn fits(constant: &TensorProto, is_bounded: bool) -> Result<bool, GraphError> {
    let tensor = from_proto(constant)?;
    let values = tensor.as_f32().unwrap_or_default();
    Ok(match values {
        [scalar] if *scalar != 0.0 && scalar.abs() < SMALLEST_NORMAL => false,
        values => is_bounded || !exceeds_f16(values),
    })
}

/// Converts a constant. Finite values beyond the range are clamped.
fn in_f16(name: &str, constant: &TensorProto) -> Result<TensorProto, GraphError> {
    let tensor = from_proto(constant)?;
    let values = tensor.as_f32().unwrap_or_default();
    let halves = if exceeds_f16(values) {
        let clamped = values.iter().map(|value| match value.is_finite() {
            true => value.clamp(-LARGEST, LARGEST),
            false => *value,
        });
        halves_of(&clamped.collect::<Vec<f32>>())
    } else {
        halves_of(values)
    };
    let half = Tensor::new(tensor.shape().clone(), Data::F16(halves));
    let half = half.map_err(|error| GraphError::Weight {
        name: name.to_owned(),
        why: error.into(),
    })?;
    Ok(initializer(name, &half))
}
