//! Random shapes, numbers and attributes. They only depend on the operator and the number of the case.

use crate::build::{initializer, int, integers, node};
use crate::onnx::{AttributeProto, NodeProto, TensorProto, data_type};
use crate::operators::Operator;
use frostline_tensor::Tensor;

/// Node with the operator under test, and all inputs.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) operator: &'static str,
    pub(super) opset: i64,
    /// Dimensions of the network's input. The first axis is the batch.
    pub(super) input: Vec<usize>,
    pub(super) before: Vec<NodeProto>,
    pub(super) weights: Vec<TensorProto>,
    pub(super) inputs: Vec<String>,
    pub(super) attributes: Vec<AttributeProto>,
    pub(super) outputs: usize,
    /// Index of the output that is compared.
    pub(super) told: usize,
    pub(super) seed: u64,
}

/// Element types for random cases.
const TYPES: &[i64] = &[1, 1, 1, 11, 10, 6, 7, 2, 3, 9];

/// Pseudorandom generator and the case under construction.
pub(super) struct Draw {
    state: u64,
    pub(super) operator: &'static str,
    pub(super) opset: i64,
    /// Element type of the values.
    pub(super) dtype: i64,
    input: Vec<usize>,
    before: Vec<NodeProto>,
    weights: Vec<TensorProto>,
    pub(super) inputs: Vec<String>,
    pub(super) attributes: Vec<AttributeProto>,
    pub(super) outputs: usize,
}

impl Draw {
    pub(super) fn new(operator: &Operator, number: u64) -> Self {
        let (first, last) = operator.versions.unwrap_or_default();
        let operator = operator.name;
        let name = operator
            .bytes()
            .fold(number + 1, |seed, byte| seed.wrapping_mul(31) + u64::from(byte));
        let mut draw = Self {
            state: name,
            operator,
            opset: 17,
            dtype: 1,
            input: vec![],
            before: vec![],
            weights: vec![],
            inputs: vec![],
            attributes: vec![],
            outputs: 1,
        };
        draw.dtype = draw.of(TYPES);
        let opsets = [7, 9, 10, 11, 12, 13, 15, 17, 18, 19, 20, 21, 22, 23, 24].into_iter();
        let opsets: Vec<i64> = opsets.filter(|opset| (first..=last).contains(opset)).collect();
        draw.opset = draw.of(&opsets);
        draw
    }

    /// SplitMix64 (Steele et al.).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub(super) fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    pub(super) fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Returns a small axis size. The sizes include 1, odd numbers and numbers close to the width of vector
    /// registers.
    pub(super) fn size(&mut self) -> usize {
        self.of(&[1, 1, 2, 3, 4, 5, 7, 8, 9, 17])
    }

    pub(super) fn sizes(&mut self, rank: usize) -> Vec<usize> {
        (0..rank).map(|_| self.size()).collect()
    }

    /// Returns `count` integers between `least` and `most`.
    pub(super) fn ints(&mut self, count: usize, least: i64, most: i64) -> Vec<i64> {
        let span = usize::try_from(most - least + 1).unwrap();
        (0..count).map(|_| least + self.below(span) as i64).collect()
    }

    /// Returns an axis for a tensor of rank `rank`. The axis is counted from the start or from the end.
    pub(super) fn axis(&mut self, rank: usize) -> i64 {
        let axis = self.below(rank) as i64;
        if self.flip() { axis } else { axis - rank as i64 }
    }

    /// Returns dimensions that broadcast with `dims`. Some axes are 1, and some leading axes are omitted.
    pub(super) fn partner(&mut self, dims: &[usize]) -> Vec<usize> {
        let skipped = self.below(dims.len() + 1);
        let one = |draw: &mut Self, &size: &usize| if draw.flip() { size } else { 1 };
        dims[skipped..].iter().map(|size| one(self, size)).collect()
    }

    pub(super) fn with(&mut self, attribute: AttributeProto) {
        self.attributes.push(attribute);
    }

    fn typed(&mut self, name: &str, dtype: i64) -> String {
        if dtype == 1 {
            return name.to_owned();
        }
        let cast = format!("{name}_as_{dtype}");
        if !self.before.iter().any(|node| node.output[0] == cast) {
            self.before
                .push(node("Cast", &[name], &[&cast]).with([int("to", dtype)]));
        }
        cast
    }

    /// Adds the network's input with these dimensions as an input.
    pub(super) fn data(&mut self, dims: &[usize]) {
        self.data_as(dims, self.dtype);
    }

    pub(super) fn data_as(&mut self, dims: &[usize], dtype: i64) {
        self.input = dims.to_vec();
        let name = self.typed("x", dtype);
        self.inputs.push(name);
    }

    /// Adds a weight as an input.
    pub(super) fn weight(&mut self, dims: &[usize]) {
        self.weight_as(dims, self.dtype);
    }

    pub(super) fn weight_as(&mut self, dims: &[usize], dtype: i64) {
        let name = format!("w{}", self.weights.len());
        let seed = self.next();
        self.weights.push(initializer(&name, &numbers(seed, dims)));
        let name = self.typed(&name, dtype);
        self.inputs.push(name);
    }

    /// Adds a list of integers as an input.
    pub(super) fn list(&mut self, values: &[i64]) {
        let name = format!("w{}", self.weights.len());
        self.weights.push(integers(&name, values));
        self.inputs.push(name);
    }

    /// Adds integers with these dimensions as an input.
    pub(super) fn indices(&mut self, dims: &[usize], least: i64, most: i64) {
        let values = self.ints(dims.iter().product(), least, most);
        self.list(&values);
        if let Some(weight) = self.weights.last_mut() {
            weight.dims = dims.iter().map(|&dim| dim as i64).collect();
        }
    }

    /// Adds a scalar `f32` as an input.
    pub(super) fn number(&mut self, value: f32) {
        let name = format!("w{}", self.weights.len());
        let value = Tensor::f32(Vec::<usize>::new(), vec![value]).unwrap();
        self.weights.push(initializer(&name, &value));
        let name = self.typed(&name, self.dtype);
        self.inputs.push(name);
    }

    /// Adds a list of `f32` as an input.
    pub(super) fn floats(&mut self, values: &[f32]) {
        let name = format!("w{}", self.weights.len());
        let value = Tensor::f32([values.len()], values.to_vec()).unwrap();
        self.weights.push(initializer(&name, &value));
        self.inputs.push(name);
    }

    /// Stores a tensor of the element type `code` and returns the name.
    fn stored(&mut self, code: i32, dims: &[usize], bytes: Vec<u8>) -> String {
        let name = format!("w{}", self.weights.len());
        self.weights.push(TensorProto {
            name: name.clone(),
            data_type: code,
            dims: dims.iter().map(|&dim| dim as i64).collect(),
            raw_data: bytes.into(),
            ..TensorProto::default()
        });
        name
    }

    /// Stores a scale and a zero point with the element type `code`, and returns the names.
    pub(super) fn scale(&mut self, code: i32) -> [String; 2] {
        let scale = self.of(&[0.01_f32, 0.05]).to_le_bytes();
        let zero_point = if code == data_type::UINT8 {
            self.of(&[0, 128, 7])
        } else {
            0
        };
        [
            self.stored(data_type::FLOAT, &[], scale.to_vec()),
            self.stored(code, &[], vec![zero_point]),
        ]
    }

    /// Adds a node before the node under test and returns the name of the output.
    pub(super) fn first(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> String {
        let output = format!("b{}", self.before.len());
        self.before
            .push(node(operator, inputs, &[&output]).with(attributes));
        output
    }

    /// Adds a dequantized weight of bytes and returns the name.
    pub(super) fn quantized_weight(&mut self, dims: &[usize]) -> String {
        let bytes = (0..dims.iter().product()).map(|_| self.next() as u8).collect();
        let integers = self.stored(data_type::INT8, dims, bytes);
        let [scale, zero_point] = self.scale(data_type::INT8);
        self.first("DequantizeLinear", &[&integers, &scale, &zero_point], vec![])
    }

    /// Replaces all inputs by the shape of the network's input.
    pub(super) fn shape_of_input(&mut self) {
        self.before.push(node("Shape", &["x"], &["shape"]));
        self.inputs = vec!["shape".into()];
    }

    pub(super) fn done(mut self) -> Case {
        let told = self.below(self.outputs);
        Case {
            operator: self.operator,
            opset: self.opset,
            input: self.input,
            before: self.before,
            weights: self.weights,
            inputs: self.inputs,
            attributes: self.attributes,
            outputs: self.outputs,
            told,
            seed: self.state,
        }
    }
}

/// Returns numbers with an absolute value between 1 and 6, which are safe divisors.
pub(super) fn numbers(seed: u64, dims: &[usize]) -> Tensor {
    let values = crate::initialize::Normal::new(seed, 1.0).draw(dims.iter().product());
    let values = values
        .iter()
        .map(|value| value.signum() * (1.0 + value.abs().min(5.0)));
    Tensor::f32(dims.to_vec(), values.collect()).unwrap()
}
