use crate::readers::Readers;
use frostline_graph::onnx::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfo, data_type,
};
use frostline_graph::tensors::{code_of, from_bytes, from_proto, to_float};
use frostline_graph::{build, drop_unread, drop_unread_inputs};
use frostline_tensor::DType;
use std::collections::BTreeMap;

/// Minimum operator set of gradient graphs: the first one in which all reductions read axes from an input. A
/// suffix with a newer operator set keeps it.
const OPSET: i64 = 18;

/// The floating-point type a suffix computes in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Float {
    #[default]
    F32,
    /// For gradient checks, because central differences need the additional digits.
    F64,
}

impl Float {
    /// Returns the type in which a suffix with an input of type `code` is trained. Half precision is trained
    /// in `f32`, because gradients exceed its range.
    pub(crate) fn from_code(code: i32) -> Option<Self> {
        match code {
            data_type::DOUBLE => Some(Self::F64),
            code => data_type::is_float(code).then_some(Self::F32),
        }
    }

    pub(crate) fn data_type(self) -> i32 {
        code_of(self.dtype())
    }

    pub(crate) fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F64 => DType::F64,
        }
    }

    /// Converts a stored tensor if it has another floating-point type.
    pub(crate) fn convert(self, stored: &TensorProto) -> Option<TensorProto> {
        if !data_type::is_float(stored.data_type) || stored.data_type == self.data_type() {
            return Some(stored.clone());
        }
        let tensor = to_float(&from_proto(stored).ok()?, self.dtype())?;
        Some(build::initializer(&stored.name, &tensor))
    }
}

/// Emits ONNX nodes in order. Tensors get fresh names, and equal constants share a name.
#[derive(Debug, Default)]
pub(crate) struct Emitter {
    pub(crate) float: Float,
    nodes: Vec<NodeProto>,
    constants: BTreeMap<(i32, Vec<i64>, Vec<u8>), String>,
    renamed: BTreeMap<String, String>,
    products: BTreeMap<String, [usize; 2]>,
    rows: BTreeMap<String, usize>,
    tensors: usize,
    /// Integer zero that is computed at run time and added to the shapes of Reshape nodes, which hides these
    /// shapes from ONNX Runtime. `None` while shapes are visible.
    hidden_zero: Option<String>,
    /// Such a zero for the backward pass.
    backward_zero: Option<String>,
}

impl Emitter {
    pub(crate) fn new(float: Float) -> Self {
        Self {
            float,
            ..Self::default()
        }
    }

    fn fresh(&mut self) -> String {
        self.tensors += 1;
        format!("t{}", self.tensors)
    }

    /// Emits a node with one output and returns the output's name. An empty input name omits an optional
    /// input.
    pub(crate) fn node(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> String {
        let [output] = self.nodes(operator, inputs, attributes);
        output
    }

    pub(crate) fn nodes<const N: usize>(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> [String; N] {
        let outputs = std::array::from_fn(|_| self.fresh());
        self.push(operator, inputs, attributes, outputs.to_vec());
        outputs
    }

    fn node_many(
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

    /// Emits a copy of a suffix node with other inputs and returns the names of the outputs. Axes that older
    /// operator sets store in an attribute become an input. Floating-point types in attributes become the
    /// type in which the suffix is trained.
    pub(crate) fn copy(&mut self, node: &NodeProto, inputs: &[&str]) -> Vec<String> {
        let mut inputs = inputs.to_vec();
        let mut attributes = node.attribute.clone();
        let moved = ["Reduce", "Squeeze", "Unsqueeze"]
            .iter()
            .any(|start| node.op_type.starts_with(start));
        let axes = node.ints("axes").filter(|_| moved);
        let axes = axes.map(|axes| self.ints(axes.iter().copied()));
        if let Some(axes) = &axes {
            attributes.retain(|attribute| attribute.name != "axes");
            inputs.push(axes);
        }
        for attribute in &mut attributes {
            let is_type = matches!(attribute.name.as_str(), "to" | "dtype" | "output_dtype");
            if is_type && i32::try_from(attribute.i).is_ok_and(data_type::is_float) {
                attribute.i = self.float.data_type().into();
            }
            if let Some(converted) = attribute.t.as_ref().and_then(|stored| self.float.convert(stored)) {
                attribute.t = Some(converted);
            }
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

    /// Returns the edges of the nodes emitted so far.
    pub(crate) fn readers(&self) -> Readers<'_> {
        Readers::new(&self.nodes)
    }

    /// Returns `scalar`, delayed until the tensors `after` are computed, by adding a zero computed from every
    /// tensor.
    pub(crate) fn delayed(&mut self, scalar: &str, after: &[String]) -> String {
        let mut delayed = scalar.to_owned();
        for tensor in after {
            let zero = self.zero_after(tensor);
            delayed = self.add(&delayed, &zero);
        }
        delayed
    }

    /// Emits a zero that depends on `tensor` but not on the elements.
    fn zero_after(&mut self, tensor: &str) -> String {
        let all = self.ints([-1]);
        let flat = self.node("Reshape", &[tensor, &all], vec![]);
        let first = self.integer(0);
        let infinite = self.scalar(f64::INFINITY);
        let first = self.node("Gather", &[&flat, &first], vec![build::int("axis", 0)]);
        // Always false, because no number is greater than infinity and comparisons with NaN are false.
        let greater = self.node("Greater", &[&first, &infinite], vec![]);
        self.cast_float(&greater)
    }

    /// Gives a tensor the name of a graph output. A tensor that had this name before loses it.
    pub(crate) fn rename(&mut self, tensor: &str, name: &str) {
        self.renamed.retain(|_, known| known != name);
        self.renamed.insert(tensor.into(), name.into());
    }

    pub(crate) fn ints(&mut self, values: impl IntoIterator<Item = i64>) -> String {
        let values: Vec<i64> = values.into_iter().collect();
        let raw = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(data_type::INT64, vec![values.len() as i64], raw)
    }

    pub(crate) fn scalar(&mut self, value: f64) -> String {
        self.floats(&[], &[value])
    }

    /// Returns an `f64` scalar constant, independent of the suffix's type.
    pub(crate) fn double(&mut self, value: f64) -> String {
        self.constant(data_type::DOUBLE, vec![], value.to_le_bytes().to_vec())
    }

    pub(crate) fn integer(&mut self, value: i64) -> String {
        self.constant(data_type::INT64, vec![], value.to_le_bytes().to_vec())
    }

    pub(crate) fn floats(&mut self, dims: &[usize], values: &[f64]) -> String {
        let raw = match self.float {
            Float::F32 => values
                .iter()
                .flat_map(|value| (*value as f32).to_le_bytes())
                .collect(),
            Float::F64 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        let dims = dims.iter().map(|dim| *dim as i64).collect();
        self.constant(self.float.data_type(), dims, raw)
    }

    /// Returns a constant with the shape `dims` and an integer or boolean type, or `None` for other types.
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

    pub(crate) fn reshape(&mut self, tensor: &str, dims: &[usize]) -> String {
        let mut shape = self.ints(dims.iter().map(|dim| *dim as i64));
        if let Some(zero) = self.hidden_zero.clone().filter(|_| !dims.is_empty()) {
            shape = self.add(&shape, &zero);
        }
        self.node("Reshape", &[tensor, &shape], vec![])
    }

    /// Like [`Self::reshape`], but delayed until `after` is computed. ONNX Runtime executes the nodes after
    /// it later and cannot merge them with equal nodes that read `tensor` directly.
    pub(crate) fn reshape_after(&mut self, tensor: &str, dims: &[usize], after: &str) -> String {
        let zero = self.zero_after(after);
        if self.backward_zero.is_none() {
            let tensor = self.add(tensor, &zero);
            return self.reshape(&tensor, dims);
        }
        let zero = self.cast(&zero, data_type::INT64);
        let shape = self.ints(dims.iter().map(|dim| *dim as i64));
        let shape = self.add(&shape, &zero);
        self.node("Reshape", &[tensor, &shape], vec![])
    }

    /// Reshapes `tensor` to `dims` with a shape that ONNX Runtime cannot infer. From here until
    /// [`Self::show_shapes`], this also holds for [`Self::reshape`].
    ///
    /// ONNX Runtime reuses the memory of a dead tensor for a later one of the same shape, and keeps the
    /// memory allocated in between. Forward and backward passes contain many equal shapes, so memory of the
    /// forward pass would stay allocated until the backward pass. ONNX Runtime also merges equal nodes, so it
    /// would keep tensors that the backward pass deliberately recomputes.
    pub(crate) fn reshape_hidden(&mut self, tensor: &str, dims: &[usize]) -> String {
        let zero = self.zero_after(tensor);
        self.hidden_zero = Some(self.cast(&zero, data_type::INT64));
        self.reshape(tensor, dims)
    }

    /// Makes shapes visible again, which allows operators to write over inputs. [`Self::set_shapes_hidden`]
    /// hides them from here on by a zero computed after `tensor`.
    pub(crate) fn show_shapes(&mut self, tensor: &str) {
        if self.hidden_zero.take().is_some() {
            let zero = self.zero_after(tensor);
            self.backward_zero = Some(self.cast(&zero, data_type::INT64));
        }
    }

    /// Converts `tensor` to the type of the suffix. True becomes 1 and false 0.
    pub(crate) fn cast_float(&mut self, tensor: &str) -> String {
        self.cast(tensor, self.float.data_type())
    }

    pub(crate) fn cast(&mut self, tensor: &str, code: i32) -> String {
        self.node("Cast", &[tensor], vec![build::int("to", code.into())])
    }

    /// Hides or shows the shapes of the nodes emitted next, for the backward pass.
    pub(crate) fn set_shapes_hidden(&mut self, loose: bool) {
        self.hidden_zero = self.backward_zero.clone().filter(|_| loose);
    }

    pub(crate) fn transpose(&mut self, tensor: &str, permutation: impl IntoIterator<Item = usize>) -> String {
        let permutation: Vec<i64> = permutation.into_iter().map(|axis| axis as i64).collect();
        self.node("Transpose", &[tensor], vec![build::ints("perm", &permutation)])
    }

    pub(crate) fn gather(
        &mut self,
        tensor: &str,
        indices: impl IntoIterator<Item = usize>,
        axis: i64,
    ) -> String {
        let indices = self.ints(indices.into_iter().map(|index| index as i64));
        self.node("Gather", &[tensor, &indices], vec![build::int("axis", axis)])
    }

    /// Appends a slice of zeros to axis 1 of a tensor of rank 3.
    pub(crate) fn append_zeros(&mut self, tensor: &str) -> String {
        let pads = self.ints([0, 0, 0, 0, 1, 0]);
        self.node("Pad", &[tensor, &pads], vec![])
    }

    /// Sums over `axes`. Reduced axes stay with length 1 if `keep` is set.
    pub(crate) fn sum(&mut self, tensor: &str, axes: impl IntoIterator<Item = usize>, keep: bool) -> String {
        self.reduce("ReduceSum", tensor, axes, keep)
    }

    /// Sums the `rows` of a matrix `[rows, columns]` by a matrix product, because ReduceSum of ONNX Runtime
    /// takes three times as long.
    pub(crate) fn sum_of_rows(&mut self, matrix: &str, rows: usize) -> String {
        let ones = self.floats(&[rows], &vec![1.0; rows]);
        self.node("MatMul", &[&ones, matrix], vec![])
    }

    /// Returns the sum of squares of all elements, a scalar.
    pub(crate) fn sum_of_squares(&mut self, tensor: &str) -> String {
        self.node("ReduceSumSquare", &[tensor], vec![build::int("keepdims", 0)])
    }

    /// Averages over `axes`. Reduced axes stay with length 1 if `keep` is set.
    pub(crate) fn mean(&mut self, tensor: &str, axes: impl IntoIterator<Item = usize>, keep: bool) -> String {
        self.reduce("ReduceMean", tensor, axes, keep)
    }

    /// Emits a reduction over `axes`. Reduced axes stay with length 1 if `keep` is set.
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

    /// Broadcasts axes of length 1 to the shape `dims`.
    pub(crate) fn expand(&mut self, tensor: &str, dims: &[usize]) -> String {
        let shape = self.ints(dims.iter().map(|dim| *dim as i64));
        self.node("Expand", &[tensor, &shape], vec![])
    }

    pub(crate) fn concat(&mut self, tensors: &[String], axis: i64) -> String {
        let inputs: Vec<&str> = tensors.iter().map(String::as_str).collect();
        self.node("Concat", &inputs, vec![build::int("axis", axis)])
    }

    /// Splits `tensor` along `axis` into parts with the given lengths.
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

    /// Multiplies `tensor` by a constant. Returns the tensor itself for the factor 1.
    pub(crate) fn scale(&mut self, tensor: &str, factor: f64) -> String {
        if factor == 1.0 {
            return tensor.to_owned();
        }
        let factor = self.scalar(factor);
        self.mul(tensor, &factor)
    }

    /// Registers `tensor` as the product of two matrices by a Gemm without an addend, with the shape `dims`.
    pub(crate) fn note_product(&mut self, tensor: &str, dims: [usize; 2]) {
        self.products.insert(tensor.to_owned(), dims);
    }

    /// Emits a registered product again with `beta` times `addend` added, which is faster than scaling and
    /// adding a large weight in separate passes. `tensor` can be a reshape of the product. Returns `None` if
    /// it is not a registered product with the shape `dims`.
    pub(crate) fn product_plus(
        &mut self,
        tensor: &str,
        addend: &str,
        beta: f64,
        dims: &[usize],
    ) -> Option<String> {
        let mut name = tensor.to_owned();
        let node = loop {
            let node = self.maker(&name)?;
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

    /// Registers `tensor` as the reshaped product of two matrices by a Gemm without an addend. Rows have the
    /// length `columns`.
    pub(crate) fn note_rows(&mut self, tensor: &str, columns: usize) {
        self.rows.insert(tensor.to_owned(), columns);
    }

    /// Emits registered rows again with a `bias` of length `columns` added to every row, which saves a pass
    /// over the result. Returns `None` if `tensor` is not registered with this length.
    pub(crate) fn biased(&mut self, tensor: &str, bias: &str, columns: usize) -> Option<String> {
        self.rows.get(tensor).filter(|noted| **noted == columns)?;
        let reshape = self.maker(tensor)?.clone();
        let [product, shape] = reshape.input.as_slice() else {
            return None;
        };
        let product = self.maker(product)?.clone();
        let inputs: Vec<&str> = product.input.iter().map(String::as_str).chain([bias]).collect();
        let result = self.node("Gemm", &inputs, product.attribute);
        Some(self.node("Reshape", &[&result, shape], vec![]))
    }

    /// Returns the last emitted node that computes `tensor`.
    fn maker(&self, tensor: &str) -> Option<&NodeProto> {
        let mut nodes = self.nodes.iter().rev();
        nodes.find(|node| node.output.iter().any(|output| output == tensor))
    }

    /// Returns the model with all emitted nodes that an output needs. `opset` is the operator set of the
    /// suffix, the origin of copied nodes.
    pub(crate) fn finish(
        self,
        opset: i64,
        inputs: Vec<ValueInfo>,
        outputs: Vec<ValueInfo>,
        mut initializer: Vec<TensorProto>,
    ) -> ModelProto {
        let mut nodes = self.nodes;
        let ends = nodes
            .iter_mut()
            .flat_map(|node| node.input.iter_mut().chain(&mut node.output));
        for name in ends {
            if let Some(renamed) = self.renamed.get(name) {
                renamed.clone_into(name);
            }
        }
        let constants = self.constants.into_iter();
        initializer
            .extend(constants.map(|((data_type, dims, raw), name)| from_bytes(&name, data_type, dims, raw)));
        let mut graph = GraphProto {
            name: "training".into(),
            node: nodes,
            initializer,
            input: inputs,
            output: outputs,
            ..Default::default()
        };
        drop_unread(&mut graph);
        drop_unread_inputs(&mut graph);
        build::model(opset.max(OPSET), graph)
    }
}
