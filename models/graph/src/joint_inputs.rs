//! Joint inputs. A network with several inputs, or with an input that is not `f32`, becomes a network with one `f32`
//! input. Text encoders, for example, read token ids and a mask.

use crate::joint_names::{MOST_TENSORS, batched, split};
use crate::onnx::{Dimension, DimensionValue, GraphProto, NodeProto, TensorProto, ValueInfo, data_type};
use crate::values::signed;
use crate::{GraphError, Links, Model, build, tensors};
use frostline_tensor::{DType, Shape};
use std::collections::HashSet;

/// Name of the node that divides the joint input.
const SPLIT: &str = "frostline.joint/inputs";

const SIZES: &str = "frostline.joint/input/sizes";

/// Prefix of the parts. The type, the shape and the name of the original input follow, because slices omit the nodes
/// of inputs that they do not read.
const PART: &str = "frostline.joint/input/";

/// Element types that `Cast` converts from `f32`, their names in the names of parts, and the types in which a caller
/// passes them.
const TYPES: &[(&str, i32, DType)] = &[
    ("bf16", data_type::BFLOAT16, DType::Bf16),
    ("bool", data_type::BOOL, DType::U8),
    ("f16", data_type::FLOAT16, DType::F16),
    ("f32", data_type::FLOAT, DType::F32),
    ("f64", data_type::DOUBLE, DType::F64),
    ("i16", data_type::INT16, DType::I32),
    ("i32", data_type::INT32, DType::I32),
    ("i64", data_type::INT64, DType::I64),
    ("i8", data_type::INT8, DType::I32),
    ("u16", data_type::UINT16, DType::I32),
    ("u32", data_type::UINT32, DType::I64),
    ("u64", data_type::UINT64, DType::I64),
    ("u8", data_type::UINT8, DType::U8),
];

/// One of the original inputs that a joint input contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JointInput {
    /// Name of the input.
    pub name: String,
    /// ONNX's code of the element type. [`crate::onnx::data_type`] lists the values.
    pub data_type: i32,
    /// Shape per sample, without the batch axis.
    pub shape: Shape,
}

impl JointInput {
    /// Returns the name of the element type, such as `i64` or `bool`.
    pub fn type_name(&self) -> &'static str {
        let known = TYPES.iter().find(|(_, code, _)| *code == self.data_type);
        known.map_or("unknown", |(name, ..)| name)
    }

    /// Returns the element type in which a caller passes the input. Booleans are `u8`, and other types that tensors
    /// do not have are the next larger ones.
    pub fn dtype(&self) -> DType {
        let known = TYPES.iter().find(|(_, code, _)| *code == self.data_type);
        known.map_or(DType::F32, |(_, _, dtype)| *dtype)
    }

    /// Returns the number of elements per sample, or `None` on overflow.
    fn elements(&self) -> Option<usize> {
        let mut dims = self.shape.dims().iter();
        dims.try_fold(1_usize, |all, dim| all.checked_mul(*dim))
    }

    fn from_declaration(input: &ValueInfo) -> Result<Self, String> {
        let name = &input.name;
        let tensor = input
            .tensor()
            .ok_or_else(|| format!("`{name}` is not a tensor"))?;
        let data_type = tensor.elem_type;
        if TYPES.iter().all(|(_, code, _)| *code != data_type) {
            return Err(format!(
                "`{name}` is of element type {data_type}, which cannot be converted from f32"
            ));
        }
        let shape = tensor.shape.as_ref();
        let dims = shape.map(|shape| shape.dim.as_slice());
        let (_, row) = dims.and_then(<[_]>::split_first).ok_or_else(|| {
            format!("`{name}` does not have a batch axis; export the network with a shape for this input")
        })?;
        let mut sizes = Vec::with_capacity(row.len());
        for (axis, dim) in row.iter().enumerate() {
            let size = dim.fixed().ok_or_else(|| {
                format!(
                    "axis {} of `{name}` is open; export the network with a fixed length per sample",
                    axis + 1
                )
            })?;
            sizes.push(size);
        }
        Ok(Self {
            name: name.clone(),
            data_type,
            shape: Shape::from(sizes),
        })
    }

    /// Returns the name of the part with this input.
    fn part(&self) -> String {
        let dims: Vec<String> = self.shape.dims().iter().map(usize::to_string).collect();
        format!("{PART}{}/{}/{}", self.type_name(), dims.join("x"), self.name)
    }

    fn parse(part: &str) -> Option<Self> {
        let mut fields = part.strip_prefix(PART)?.splitn(3, '/');
        let kind = fields.next()?;
        let dims = fields.next()?;
        let name = fields.next()?;
        let (_, data_type, _) = TYPES.iter().find(|(known, ..)| *known == kind)?;
        let dims: Option<Vec<usize>> = match dims {
            "" => Some(Vec::new()),
            dims => dims.split('x').map(|dim| dim.parse().ok()).collect(),
        };
        let input = Self {
            name: name.to_owned(),
            data_type: *data_type,
            shape: Shape::from(dims?),
        };
        // The name is canonical, so that equal inputs have equal names.
        (!name.is_empty() && input.part() == part).then_some(input)
    }

    /// Returns the nodes that restore this input from its part, and the weights that they read.
    fn restoration(&self) -> (Vec<NodeProto>, Vec<TensorProto>) {
        let part = self.part();
        let [shape, shaped, node_name] = ["shape", "shaped", "node"].map(|what| format!("{part}/{what}"));
        if self.shape.dims().len() == 1 && self.data_type != data_type::FLOAT {
            return (vec![self.cast(&part, &node_name)], Vec::new());
        }
        let sources = [part.as_str(), &shape];
        let nodes = match self.data_type {
            data_type::FLOAT => vec![build::node("Reshape", &sources, &[&self.name]).named(&node_name)],
            _ => vec![
                build::node("Reshape", &sources, &[&shaped]),
                self.cast(&shaped, &node_name),
            ],
        };
        (nodes, vec![build::integers(&shape, &batched(&self.shape))])
    }

    /// Returns the node that converts `from` to the element type of this input.
    fn cast(&self, from: &str, node_name: &str) -> NodeProto {
        build::cast(from, &self.name, self.data_type).named(node_name)
    }

    fn declared(&self, batch: Dimension) -> ValueInfo {
        let row = self.shape.dims().iter().map(|dim| fixed_axis(signed(*dim)));
        let dims = std::iter::once(batch).chain(row).collect();
        build::declared(&self.name, self.data_type, dims)
    }
}

const OVERFLOW: &str = "the number of elements overflows";

fn refused(names: &[&str], why: String) -> GraphError {
    GraphError::JointInput {
        names: names.join(", "),
        why,
    }
}

/// Division of a joint input into the original inputs.
pub(crate) struct JointSplit {
    pub(crate) inputs: Vec<JointInput>,
    /// Indices of the nodes that restore the original inputs.
    pub(crate) nodes: HashSet<usize>,
}

impl Model {
    /// Returns the network with a single `f32` input of shape `[batch, n]`, which contains the elements of all inputs
    /// of a sample in the order of the inputs. A network that already has one `f32` input is returned unchanged.
    ///
    /// The input is named after the original inputs, separated by commas. Additional nodes divide it, and restore the
    /// shapes, element types and names of the original inputs, so the other nodes do not change. Integers up to 2^24
    /// (16,777,216) are exact in `f32`, and thus token ids and masks. [`Model::joint_inputs`] returns the
    /// original inputs, and [`Model::without_joints`] restores them.
    ///
    /// # Errors
    /// Returns [`GraphError::JointInput`] if an input has no batch axis, an unknown size per sample or a type that
    /// `f32` cannot be converted to, or if there are more than 8 inputs. Returns [`GraphError::Inputs`] if the
    /// network has none.
    pub fn with_joint_input(&self) -> Result<Self, GraphError> {
        let inputs: Vec<&ValueInfo> = self.inputs().collect();
        if let [input] = inputs.as_slice()
            && input
                .tensor()
                .is_some_and(|tensor| tensor.elem_type == data_type::FLOAT)
        {
            return Ok(self.clone());
        }
        let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
        if inputs.is_empty() {
            self.input_name()?;
        }
        if inputs.len() > MOST_TENSORS {
            let why = format!("{} inputs exceed the limit of {MOST_TENSORS}", inputs.len());
            return Err(refused(&names, why));
        }
        let parts = inputs.iter().map(|input| JointInput::from_declaration(input));
        let parts: Vec<JointInput> = parts
            .collect::<Result<_, _>>()
            .map_err(|why| refused(&names, why))?;
        let batch = common_batch(&inputs).map_err(|why| refused(&names, why))?;
        let sizes: Option<Vec<i64>> = parts.iter().map(|part| part.elements().map(signed)).collect();
        let sizes = sizes.ok_or_else(|| refused(&names, OVERFLOW.into()))?;
        let total = sizes.iter().try_fold(0_i64, |all, size| all.checked_add(*size));
        let total = total.ok_or_else(|| refused(&names, OVERFLOW.into()))?;
        let name = self.joint_name(&names);
        let (nodes, weights) = division(&name, &parts, &sizes, self.opset());
        let mut graph = self.graph().clone();
        for values in [&mut graph.value_info, &mut graph.input] {
            values.retain(|value| !names.contains(&value.name.as_str()));
        }
        graph.value_info.extend(inputs.iter().copied().cloned());
        let dims = vec![batch, fixed_axis(total)];
        let joint = build::declared(&name, data_type::FLOAT, dims);
        graph.input.insert(0, joint);
        graph.initializer.extend(weights);
        graph.node.splice(..0, nodes);
        self.with_graph(graph)
    }

    /// Returns the inputs that [`Model::with_joint_input`] joined, in their order in the joint input, or `None` if
    /// the network has no joint input. The function checks the nodes that divide the input, so the result is
    /// also consistent for a slice and for a model from an untrusted source.
    pub fn joint_inputs(&self) -> Option<Vec<JointInput>> {
        self.joint_split().map(|split| split.inputs)
    }

    pub(crate) fn joint_split(&self) -> Option<JointSplit> {
        let mut splits = self.nodes().iter().enumerate();
        let (index, split) = splits.find(|(_, node)| node.name == SPLIT)?;
        let mut inputs = self.inputs();
        let (Some(input), None) = (inputs.next(), inputs.next()) else {
            return None;
        };
        let tensor = input
            .tensor()
            .filter(|tensor| tensor.elem_type == data_type::FLOAT)?;
        let [_, elements] = tensor.shape.as_ref()?.dim.as_slice() else {
            return None;
        };
        let sizes = self.sizes_of(split)?;
        let links = Links::of_model(self);
        let is_split = split.standard_operator() == Some("Split")
            && split.int("axis") == Some(1)
            && split.input_name(0) == Some(&input.name)
            && links.only_reader(&input.name) == Some(index)
            && split.output.len() == sizes.len()
            && split.output.len() <= MOST_TENSORS;
        if !is_split {
            return None;
        }
        let mut found = JointSplit {
            inputs: Vec::with_capacity(sizes.len()),
            nodes: HashSet::from([index]),
        };
        let mut total = 0_usize;
        for (part, size) in split.output.iter().zip(sizes) {
            let input = JointInput::parse(part)?;
            let elements = input.elements().filter(|elements| *elements > 0)?;
            let is_new = found.inputs.iter().all(|other| other.name != input.name);
            if !is_new || usize::try_from(size) != Ok(elements) {
                return None;
            }
            total = total.checked_add(elements)?;
            found.nodes.extend(self.restoring_nodes(&input, &links)?);
            found.inputs.push(input);
        }
        (Some(total) == elements.fixed()).then_some(found)
    }

    fn sizes_of(&self, split: &NodeProto) -> Option<Vec<i64>> {
        match split.ints("split") {
            Some(sizes) => Some(sizes.to_vec()),
            None => self.integers(split.input_name(1)?),
        }
    }

    /// Returns the elements of an initializer that is a vector of integers.
    fn integers(&self, name: &str) -> Option<Vec<i64>> {
        let vector = self.initializer(name).filter(|weight| weight.dims.len() == 1);
        tensors::integers(vector?)
    }

    /// Returns the indices of the nodes that restore `input` from its part, which are empty for an unused
    /// input. Returns `None` if other nodes read the part.
    fn restoring_nodes(&self, input: &JointInput, links: &Links<'_>) -> Option<Vec<usize>> {
        let mut name = input.part();
        let (expected, _) = input.restoration();
        let mut indices = Vec::with_capacity(expected.len());
        for wanted in &expected {
            let index = match links.readers(&name) {
                _ if links.is_output(&name) => return None,
                [] if indices.is_empty() => break,
                [index] => *index,
                _ => return None,
            };
            let node = self.nodes().get(index)?;
            let is_expected = node.standard_operator() == wanted.standard_operator()
                && (&node.name, &node.output) == (&wanted.name, &wanted.output)
                && node.input_name(0) == Some(&name)
                && node.attribute == wanted.attribute
                && self.is_row(node, input);
            if !is_expected {
                return None;
            }
            name.clone_from(node.output.first()?);
            indices.push(index);
        }
        let mut outputs = self.nodes().iter().flat_map(|node| &node.output);
        let is_made_elsewhere = indices.is_empty() && outputs.any(|output| *output == input.name);
        (!is_made_elsewhere).then_some(indices)
    }

    /// Returns true if a node is not a `Reshape`, or if its target is the shape of `input`.
    fn is_row(&self, node: &NodeProto, input: &JointInput) -> bool {
        if node.op_type != "Reshape" {
            return true;
        }
        let Some(target) = node.input_name(1).and_then(|name| self.integers(name)) else {
            return false;
        };
        // A batch that was opened later is -1 instead of 0.
        let row: Vec<i64> = input.shape.dims().iter().map(|dim| signed(*dim)).collect();
        matches!(target.split_first(), Some((0 | -1, rest)) if rest == row)
    }

    fn joint_name(&self, names: &[&str]) -> String {
        let graph = self.graph();
        let mut taken: HashSet<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
        taken.extend(graph.initializer.iter().map(|weight| weight.name.as_str()));
        taken.extend(
            self.nodes()
                .iter()
                .flat_map(|node| node.output.iter().map(String::as_str)),
        );
        let mut name = names.join(",");
        while taken.contains(name.as_str()) {
            name.push_str("/f32");
        }
        name
    }
}

/// Replaces the joint input by the original inputs. The nodes that divide it are removed by the caller.
pub(crate) fn restore(graph: &mut GraphProto, joint: &str, inputs: &[JointInput]) {
    let Some(place) = graph.input.iter().position(|input| input.name == joint) else {
        return;
    };
    let declared = graph.input.get(place).and_then(ValueInfo::tensor);
    let dims = declared.and_then(|tensor| tensor.shape.as_ref());
    let batch = dims.and_then(|shape| shape.dim.first()).cloned();
    let batch = batch.unwrap_or_default();
    let restored = inputs.iter().map(|input| {
        let original = graph.value_info.iter().find(|value| value.name == input.name);
        original
            .filter(|value| JointInput::from_declaration(value).as_ref() == Ok(input))
            .cloned()
            .unwrap_or_else(|| input.declared(batch.clone()))
    });
    let restored: Vec<ValueInfo> = restored.collect();
    graph
        .value_info
        .retain(|value| inputs.iter().all(|input| input.name != value.name));
    graph.input.splice(place..=place, restored);
}

/// Returns the nodes that divide the joint input `name` into `parts`, and the weights that they read.
fn division(
    name: &str,
    parts: &[JointInput],
    sizes: &[i64],
    opset: i64,
) -> (Vec<NodeProto>, Vec<TensorProto>) {
    let names: Vec<String> = parts.iter().map(JointInput::part).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (split, mut weights) = split(name, &names, sizes, build::integers(SIZES, sizes), opset);
    let mut nodes = vec![split.named(SPLIT)];
    for part in parts {
        let (restoring, shapes) = part.restoration();
        nodes.extend(restoring);
        weights.extend(shapes);
    }
    (nodes, weights)
}

/// Returns the batch axis of the first input. Either all inputs or none fix its size.
fn common_batch(inputs: &[&ValueInfo]) -> Result<Dimension, String> {
    let axes = inputs.iter().filter_map(|input| {
        let shape = input.tensor()?.shape.as_ref()?;
        shape.dim.first()
    });
    let axes: Vec<&Dimension> = axes.collect();
    match axes.split_first() {
        Some((first, rest)) if rest.iter().all(|other| other.fixed() == first.fixed()) => {
            Ok((*first).clone())
        }
        _ => Err("their first axes differ; export the network with a dynamic batch".into()),
    }
}

fn fixed_axis(size: i64) -> Dimension {
    DimensionValue::DimValue(size).into()
}
