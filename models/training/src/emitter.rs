use crate::readers::Readers;
use frostline_graph::build;
use frostline_graph::onnx::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfo, data_type,
};
use std::collections::{BTreeMap, BTreeSet};

/// Gradient graphs are written for this operator set, or for that of the suffix where it is newer: the first in which every reduction
/// takes its axes as an input.
const OPSET: i64 = 18;

/// The floating-point type a suffix computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Float {
    F32,
    /// For checking gradients: central differences need the digits.
    F64,
}

impl Float {
    pub(crate) fn from_code(code: i32) -> Option<Self> {
        [Self::F32, Self::F64]
            .into_iter()
            .find(|float| float.data_type() == code)
    }

    pub(crate) const fn data_type(self) -> i32 {
        match self {
            Self::F32 => data_type::FLOAT,
            Self::F64 => data_type::DOUBLE,
        }
    }
}

/// Writes ONNX nodes one after another; every tensor gets a fresh name, equal constants share one.
#[derive(Debug)]
pub(crate) struct Emitter {
    pub(crate) float: Float,
    nodes: Vec<NodeProto>,
    constants: BTreeMap<(i32, Vec<i64>, Vec<u8>), String>,
    renamed: BTreeMap<String, String>,
    products: BTreeMap<String, [usize; 2]>,
    rows: BTreeMap<String, usize>,
    tensors: usize,
    /// An integer zero that ONNX Runtime knows at run time only, where it is kept from knowing the shapes of what is written.
    loose: Option<String>,
    /// Such a zero for the backward pass.
    later: Option<String>,
}

impl Emitter {
    pub(crate) fn new(float: Float) -> Self {
        let (nodes, constants, renamed, products, rows) = Default::default();
        Self {
            float,
            nodes,
            constants,
            renamed,
            products,
            rows,
            tensors: 0,
            loose: None,
            later: None,
        }
    }

    fn fresh(&mut self) -> String {
        self.tensors += 1;
        format!("t{}", self.tensors)
    }

    /// Emits a node with one output and returns the output's name. An empty input name leaves an optional input out.
    pub(crate) fn node(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> String {
        let output = self.fresh();
        self.push(operator, inputs, attributes, vec![output.clone()]);
        output
    }

    /// Emits a node with two outputs.
    pub(crate) fn node_pair(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> (String, String) {
        let (first, second) = (self.fresh(), self.fresh());
        self.push(operator, inputs, attributes, vec![first.clone(), second.clone()]);
        (first, second)
    }

    /// Emits a node with `count` outputs.
    pub(crate) fn node_many(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
        count: usize,
    ) -> Vec<String> {
        let outputs: Vec<String> = (0..count).map(|_| self.fresh()).collect();
        self.push(operator, inputs, attributes, outputs.clone());
        outputs
    }

    /// Emits `node` as it stands in the suffix over `inputs`, and returns the names of its outputs. What older operator sets have as
    /// an attribute becomes an input.
    pub(crate) fn copy(&mut self, node: &NodeProto, inputs: &[&str]) -> Vec<String> {
        let (mut inputs, mut attributes) = (inputs.to_vec(), node.attribute.clone());
        let moved = ["Reduce", "Squeeze", "Unsqueeze"]
            .iter()
            .any(|start| node.op_type.starts_with(start));
        let axes = node.ints("axes").filter(|_| moved);
        let axes = axes.map(|axes| self.ints(axes.iter().copied()));
        if let Some(axes) = &axes {
            attributes.retain(|attribute| attribute.name != "axes");
            inputs.push(axes);
        }
        self.node_many(&node.op_type, &inputs, attributes, node.output.len())
    }

    fn push(&mut self, operator: &str, inputs: &[&str], attribute: Vec<AttributeProto>, output: Vec<String>) {
        self.nodes.push(NodeProto {
            name: format!("n{}", self.nodes.len()),
            op_type: operator.into(),
            input: inputs.iter().map(|name| (*name).to_owned()).collect(),
            attribute,
            output,
            ..Default::default()
        });
    }

    /// The edges of what is emitted so far.
    pub(crate) fn readers(&self) -> Readers<'_> {
        Readers::new(&self.nodes)
    }

    /// `scalar`, there only once the tensors `after` are: a zero made of each is added.
    pub(crate) fn delayed(&mut self, scalar: &str, after: &[String]) -> String {
        let mut delayed = scalar.to_owned();
        for tensor in after {
            let zero = self.zero_after(tensor);
            delayed = self.add(&delayed, &zero);
        }
        delayed
    }

    /// A zero that is there once `tensor` is, whatever it holds.
    fn zero_after(&mut self, tensor: &str) -> String {
        let all = self.ints([-1]);
        let flat = self.node("Reshape", &[tensor, &all], vec![]);
        let (first, infinite) = (self.integer(0), self.scalar(f64::INFINITY));
        let first = self.node("Gather", &[&flat, &first], vec![build::int("axis", 0)]);
        // Nothing is greater, and nothing compares to a NaN.
        let greater = self.node("Greater", &[&first, &infinite], vec![]);
        let to = build::int("to", self.float.data_type().into());
        self.node("Cast", &[&greater], vec![to])
    }

    /// Gives a tensor the name it has as an output of the graph, instead of the one that had it before.
    pub(crate) fn rename(&mut self, tensor: &str, name: &str) {
        self.renamed.retain(|_, known| known != name);
        self.renamed.insert(tensor.into(), name.into());
    }

    /// A one-dimensional `i64` constant.
    pub(crate) fn ints(&mut self, values: impl IntoIterator<Item = i64>) -> String {
        let values: Vec<i64> = values.into_iter().collect();
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(data_type::INT64, vec![values.len() as i64], raw)
    }

    /// A floating-point scalar constant.
    pub(crate) fn scalar(&mut self, value: f64) -> String {
        self.floats(&[], &[value])
    }

    /// A scalar constant of type `f64`, whatever the suffix computes in.
    pub(crate) fn double(&mut self, value: f64) -> String {
        self.constant(data_type::DOUBLE, vec![], value.to_le_bytes().to_vec())
    }

    /// A scalar `i64` constant.
    pub(crate) fn integer(&mut self, value: i64) -> String {
        self.constant(data_type::INT64, vec![], value.to_le_bytes().to_vec())
    }

    /// A floating-point constant of shape `dims`.
    pub(crate) fn floats(&mut self, dims: &[usize], values: &[f64]) -> String {
        let raw = match self.float {
            Float::F32 => values
                .iter()
                .flat_map(|value| (*value as f32).to_le_bytes())
                .collect(),
            Float::F64 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        self.constant(
            self.float.data_type(),
            dims.iter().map(|dim| *dim as i64).collect(),
            raw,
        )
    }

    /// Integers or truth values of shape `dims`; `None` for other types.
    pub(crate) fn integers(&mut self, data_type: i32, dims: &[usize], values: &[i64]) -> Option<String> {
        let raw: Vec<u8> = match data_type {
            data_type::INT64 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            data_type::INT32 => values
                .iter()
                .flat_map(|value| (*value as i32).to_le_bytes())
                .collect(),
            data_type::BOOL | data_type::UINT8 => values.iter().map(|value| *value as u8).collect(),
            _ => return None,
        };
        Some(self.constant(data_type, dims.iter().map(|dim| *dim as i64).collect(), raw))
    }

    fn constant(&mut self, data_type: i32, dims: Vec<i64>, raw: Vec<u8>) -> String {
        let next = format!("c{}", self.constants.len());
        self.constants
            .entry((data_type, dims, raw))
            .or_insert(next)
            .clone()
    }

    /// `tensor` with the same elements in the shape `dims`.
    pub(crate) fn reshape(&mut self, tensor: &str, dims: &[usize]) -> String {
        let mut shape = self.ints(dims.iter().map(|dim| *dim as i64));
        if let Some(zero) = self.loose.clone().filter(|_| !dims.is_empty()) {
            shape = self.add(&shape, &zero);
        }
        self.node("Reshape", &[tensor, &shape], vec![])
    }

    /// [`Self::reshape`], there only once `after` is: what is made of it runs later, and is merged with nothing that was made of `tensor` before.
    pub(crate) fn reshape_after(&mut self, tensor: &str, dims: &[usize], after: &str) -> String {
        let zero = self.zero_after(after);
        if self.later.is_none() {
            let tensor = self.add(tensor, &zero);
            return self.reshape(&tensor, dims);
        }
        let zero = self.cast_to_int(&zero);
        let shape = self.ints(dims.iter().map(|dim| *dim as i64));
        let shape = self.add(&shape, &zero);
        self.node("Reshape", &[tensor, &shape], vec![])
    }

    /// `tensor` in the shape `dims`, which ONNX Runtime does not know. Until [`Self::set_strict`] it knows no shape that [`Self::reshape`] gives.
    ///
    /// ONNX Runtime gives a tensor the memory of an earlier one of the same shape that is no longer needed, and holds that memory in between.
    /// Forward and backward pass are full of equal shapes: what a forward pass leaves would be held for the backward pass. It also merges equal
    /// nodes, and would keep what the backward pass computes once more.
    pub(crate) fn loosened(&mut self, tensor: &str, dims: &[usize]) -> String {
        let zero = self.zero_after(tensor);
        self.loose = Some(self.cast_to_int(&zero));
        self.reshape(tensor, dims)
    }

    /// Has shapes be known from now on, so that an operator can write over its input; but for what is written after [`Self::set_loose`], by
    /// shapes that are there once `tensor` is.
    pub(crate) fn set_strict(&mut self, tensor: &str) {
        if self.loose.take().is_some() {
            let zero = self.zero_after(tensor);
            self.later = Some(self.cast_to_int(&zero));
        }
    }

    fn cast_to_int(&mut self, tensor: &str) -> String {
        self.node("Cast", &[tensor], vec![build::int("to", data_type::INT64.into())])
    }

    /// Whether ONNX Runtime is kept from knowing shapes in the backward pass.
    pub(crate) fn set_loose(&mut self, loose: bool) {
        self.loose = self.later.clone().filter(|_| loose);
    }

    pub(crate) fn transpose(&mut self, tensor: &str, permutation: impl IntoIterator<Item = usize>) -> String {
        let permutation: Vec<i64> = permutation.into_iter().map(|axis| axis as i64).collect();
        self.node("Transpose", &[tensor], vec![build::ints("perm", &permutation)])
    }

    /// Picks `indices` along `axis`.
    pub(crate) fn gather(
        &mut self,
        tensor: &str,
        indices: impl IntoIterator<Item = usize>,
        axis: i64,
    ) -> String {
        let indices = self.ints(indices.into_iter().map(|index| index as i64));
        self.node("Gather", &[tensor, &indices], vec![build::int("axis", axis)])
    }

    /// Adds one slice of zeros at the end of axis 1 of a tensor of rank 3.
    pub(crate) fn append_zeros(&mut self, tensor: &str) -> String {
        let pads = self.ints([0, 0, 0, 0, 1, 0]);
        self.node("Pad", &[tensor, &pads], vec![])
    }

    /// Sums over `axes`, keeping them with length 1 if `keep`.
    pub(crate) fn sum(&mut self, tensor: &str, axes: impl IntoIterator<Item = usize>, keep: bool) -> String {
        self.reduce("ReduceSum", tensor, axes, keep)
    }

    /// Sums the `rows` of a matrix `[rows, columns]`. As a product: ONNX Runtime's ReduceSum takes thrice as long.
    pub(crate) fn sum_of_rows(&mut self, matrix: &str, rows: usize) -> String {
        let ones = self.floats(&[rows], &vec![1.0; rows]);
        self.node("MatMul", &[&ones, matrix], vec![])
    }

    /// The sum of all elements' squares, a scalar.
    pub(crate) fn sum_of_squares(&mut self, tensor: &str) -> String {
        self.node("ReduceSumSquare", &[tensor], vec![build::int("keepdims", 0)])
    }

    /// Averages over `axes`, keeping them with length 1 if `keep`.
    pub(crate) fn mean(&mut self, tensor: &str, axes: impl IntoIterator<Item = usize>, keep: bool) -> String {
        self.reduce("ReduceMean", tensor, axes, keep)
    }

    /// Emits a reduction over `axes`, keeping them with length 1 if `keep`.
    pub(crate) fn reduce(
        &mut self,
        operator: &str,
        tensor: &str,
        axes: impl IntoIterator<Item = usize>,
        keep: bool,
    ) -> String {
        let axes = self.ints(axes.into_iter().map(|axis| axis as i64));
        self.node(
            operator,
            &[tensor, &axes],
            vec![build::int("keepdims", keep.into())],
        )
    }

    /// Repeats axes of length 1 up to the shape `dims`.
    pub(crate) fn expand(&mut self, tensor: &str, dims: &[usize]) -> String {
        let shape = self.ints(dims.iter().map(|dim| *dim as i64));
        self.node("Expand", &[tensor, &shape], vec![])
    }

    pub(crate) fn concat(&mut self, tensors: &[String], axis: i64) -> String {
        let inputs: Vec<&str> = tensors.iter().map(String::as_str).collect();
        self.node("Concat", &inputs, vec![build::int("axis", axis)])
    }

    /// Splits along `axis` into parts of these lengths.
    pub(crate) fn split(&mut self, tensor: &str, lengths: &[usize], axis: i64) -> Vec<String> {
        let sizes = self.ints(lengths.iter().map(|length| *length as i64));
        self.node_many(
            "Split",
            &[tensor, &sizes],
            vec![build::int("axis", axis)],
            lengths.len(),
        )
    }

    pub(crate) fn add(&mut self, left: &str, right: &str) -> String {
        self.node("Add", &[left, right], vec![])
    }

    pub(crate) fn sub(&mut self, left: &str, right: &str) -> String {
        self.node("Sub", &[left, right], vec![])
    }

    pub(crate) fn mul(&mut self, left: &str, right: &str) -> String {
        self.node("Mul", &[left, right], vec![])
    }

    pub(crate) fn div(&mut self, left: &str, right: &str) -> String {
        self.node("Div", &[left, right], vec![])
    }

    /// `tensor` times a constant; the tensor itself when the constant is 1.
    pub(crate) fn scale(&mut self, tensor: &str, factor: f64) -> String {
        if factor == 1.0 {
            return tensor.to_owned();
        }
        let factor = self.scalar(factor);
        self.mul(tensor, &factor)
    }

    /// Notes that `tensor` is the result of a Gemm of two matrices alone, of shape `dims`.
    pub(crate) fn note_product(&mut self, tensor: &str, dims: [usize; 2]) {
        self.products.insert(tensor.to_owned(), dims);
    }

    /// Emits a noted product (`tensor` is it, or a reshape of it) once more, now on top of `beta` times `addend`: that costs
    /// less than a scaling and an addition over the memory of a large weight. `None` when `tensor` is no product of shape `dims`.
    pub(crate) fn product_plus(
        &mut self,
        tensor: &str,
        addend: &str,
        beta: f64,
        dims: &[usize],
    ) -> Option<String> {
        let mut name = tensor.to_owned();
        let node = loop {
            let node = self.nodes.iter().rev().find(|node| node.output.contains(&name))?;
            if node.op_type != "Reshape" {
                break node.clone();
            }
            name.clone_from(node.input.first()?);
        };
        let noted = self.products.get(&name).is_some_and(|noted| noted == dims);
        let ([left, right], true) = (node.input.as_slice(), noted) else {
            return None;
        };
        let attributes = node
            .attribute
            .into_iter()
            .chain([build::float("beta", beta as f32)]);
        Some(self.node("Gemm", &[left, right, addend], attributes.collect()))
    }

    /// Notes that `tensor` is the reshaped result of a Gemm of two matrices alone, whose rows are `columns` long.
    pub(crate) fn note_rows(&mut self, tensor: &str, columns: usize) {
        self.rows.insert(tensor.to_owned(), columns);
    }

    /// Emits noted rows once more, now with a `bias` of `columns` added to each: that spares a pass over them. `None` when `tensor`
    /// holds no such rows.
    pub(crate) fn biased(&mut self, tensor: &str, bias: &str, columns: usize) -> Option<String> {
        self.rows.get(tensor).filter(|noted| **noted == columns)?;
        let maker = |name: &String| self.nodes.iter().rev().find(|node| node.output.contains(name));
        let reshape = maker(&tensor.to_owned())?.clone();
        let [product, shape] = reshape.input.as_slice() else {
            return None;
        };
        let product = maker(product)?.clone();
        let inputs: Vec<&str> = product.input.iter().map(String::as_str).chain([bias]).collect();
        let result = self.node("Gemm", &inputs, product.attribute);
        Some(self.node("Reshape", &[&result, shape], vec![]))
    }

    /// The model over everything emitted that an output needs, some of it copied from a model of operator set `opset`.
    pub(crate) fn finish(
        self,
        opset: i64,
        mut inputs: Vec<ValueInfo>,
        outputs: Vec<ValueInfo>,
        mut initializer: Vec<TensorProto>,
    ) -> ModelProto {
        let mut needed: BTreeSet<String> = outputs.iter().map(|output| output.name.clone()).collect();
        let mut nodes = Vec::new();
        for mut node in self.nodes.into_iter().rev() {
            for name in node.input.iter_mut().chain(&mut node.output) {
                if let Some(renamed) = self.renamed.get(name) {
                    renamed.clone_into(name);
                }
            }
            if node.output.iter().any(|output| needed.contains(output)) {
                needed.extend(node.input.iter().cloned());
                nodes.push(node);
            }
        }
        nodes.reverse();
        let constants = self.constants.into_iter();
        initializer.extend(constants.map(|((data_type, dims, raw), name)| TensorProto {
            name,
            data_type,
            dims,
            raw_data: raw.into(),
            ..Default::default()
        }));
        initializer.retain(|tensor| needed.contains(&tensor.name));
        inputs.retain(|input| needed.contains(&input.name));
        let graph = GraphProto {
            name: "training".into(),
            node: nodes,
            initializer,
            input: inputs,
            output: outputs,
            ..Default::default()
        };
        build::model(opset.max(OPSET), graph)
    }
}
