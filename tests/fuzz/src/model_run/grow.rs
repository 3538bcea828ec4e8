//! Converts arbitrary bytes to networks. Most small changes of the bytes produce a similar network.

use frostline_graph::build::{batched, float, initializer, int, integers, ints, model, node};
use frostline_graph::onnx::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfo, data_type,
};
use frostline_tensor::Tensor;

/// Name and shape of the input.
pub(super) const INPUT: &str = "x";
pub(super) const ROW: [usize; 3] = [4, 3, 2];

const OUTPUT: &str = "y";

/// Maximum number of nodes.
const NODES: usize = 5;

/// Operators, kinds of inputs, and optional attributes. Inputs: `v` value, `w` weights, `c` convolution
/// kernel, `m` matrix, `i` sizes, `a` axes, `p` pads, `k` list with one number, `n` integer, `f` float.
/// Inputs after `?` are optional.
const OPERATORS: &[(&str, &str, &[&str])] = &[
    ("MatMul", "vm", &[]),
    (
        "Abs Ceil Cos Erf Exp Floor HardSwish Identity Log Mish Neg Not Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Tan Tanh Shape Size GlobalAveragePool GlobalMaxPool MeanVarianceNormalization",
        "v",
        &[],
    ),
    (
        "Celu Elu LeakyRelu ThresholdedRelu HardSigmoid Swish Shrink",
        "v",
        &["alpha", "beta", "lambd", "bias"],
    ),
    (
        "Add Sub Mul Div Pow Max Min Mean Sum And Or Xor Equal Greater GreaterOrEqual Less LessOrEqual PRelu CastLike",
        "vw",
        &[],
    ),
    (
        "Add Sub Mul Div Pow Max Min Mean Sum MatMul Mod BitShift",
        "vv",
        &["fmod"],
    ),
    ("Where", "vvw", &[]),
    ("Clip", "v?ff", &[]),
    ("Concat", "vv", &["axis"]),
    ("Concat", "vw", &["axis"]),
    (
        "Softmax LogSoftmax Hardmax Flatten ArgMax ArgMin LpNormalization",
        "v",
        &["axis", "keepdims", "p", "select_last_index"],
    ),
    (
        "ReduceMax ReduceMean ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare",
        "v",
        &["axes", "keepdims"],
    ),
    ("ReduceSum", "v?a", &["keepdims", "noop_with_empty_axes"]),
    ("Transpose", "v", &["perm"]),
    ("Reshape Expand Tile", "vi", &["allowzero"]),
    ("Squeeze Unsqueeze", "va", &[]),
    ("Pad", "vp?f", &[]),
    ("Slice", "vkk?kk", &[]),
    ("Gather GatherElements", "vk", &["axis"]),
    ("GatherND ScatterND", "vkw", &["batch_dims"]),
    ("ScatterElements", "vkw", &["axis"]),
    ("TopK", "vk", &["axis", "largest", "sorted"]),
    ("OneHot", "knw", &["axis"]),
    ("CumSum", "vn", &["exclusive", "reverse"]),
    ("Trilu", "v?n", &["upper"]),
    ("Split", "v?k", &["axis"]),
    ("Cast", "v", &["to"]),
    ("ConstantOfShape", "i", &[]),
    ("Range", "nnn", &[]),
    ("Dropout", "v", &[]),
    ("Gelu", "v", &[]),
    ("DepthToSpace SpaceToDepth", "v", &["blocksize"]),
    (
        "AveragePool MaxPool LpPool",
        "v",
        &[
            "kernel_shape",
            "strides",
            "pads",
            "dilations",
            "ceil_mode",
            "count_include_pad",
            "p",
        ],
    ),
    ("GlobalLpPool", "v", &["p"]),
    (
        "Conv ConvTranspose",
        "vc?w",
        &["strides", "pads", "dilations", "group", "output_padding"],
    ),
    ("Gemm", "vw?w", &["alpha", "beta", "transA", "transB"]),
    ("BatchNormalization", "vwwww", &["epsilon"]),
    ("InstanceNormalization", "vww", &["epsilon"]),
    ("GroupNormalization", "vww", &["epsilon", "num_groups"]),
    (
        "LayerNormalization RMSNormalization",
        "vw?w",
        &["axis", "epsilon"],
    ),
    ("LRN", "v", &["size", "alpha", "beta", "bias"]),
    ("Attention", "vvv", &["q_num_heads", "kv_num_heads"]),
    ("Resize Upsample", "vw?i", &[]),
];

/// Valid lists by purpose.
const LISTS: &[(&str, &[&[i64]])] = &[
    (
        "kernel_shape strides dilations output_padding",
        &[&[1, 1], &[2, 2], &[1, 2]],
    ),
    ("pads", &[&[0, 0, 0, 0], &[1, 1, 1, 1], &[0, 1, 0, 1]]),
    ("perm", &[&[0, 2, 3, 1], &[0, 1, 3, 2], &[0, 3, 1, 2]]),
    ("axes a", &[&[1], &[2, 3], &[-1], &[1, 2, 3]]),
    // Sizes and repetitions per axis.
    (
        "i",
        &[&[0, -1], &[1, 1, 2, 1], &[0, 2, 2, -1], &[1, 4, 3, 2], &[2, 2]],
    ),
    (
        "p",
        &[
            &[0, 0, 0, 0, 0, 0, 1, 1],
            &[0, 0, 1, 0, 0, 0, 0, 2],
            &[0, 1, 0, 0, 0, 1, 0, 0],
        ],
    ),
    ("k", &[&[1], &[2], &[0], &[-1], &[3]]),
];

/// Required attributes.
const NEEDED: [&str; 8] = [
    "kernel_shape",
    "blocksize",
    "to",
    "size",
    "q_num_heads",
    "kv_num_heads",
    "num_groups",
    "perm",
];

/// Shapes of kernels and matrices that fit the input.
const KERNELS: &[&[usize]] = &[&[4, 4, 2, 2], &[4, 4, 1, 1], &[4, 1, 2, 1], &[4, 4, 3, 2]];
const MATRICES: &[&[usize]] = &[&[2, 3], &[2, 1], &[4, 2, 2], &[2, 5]];

/// Shapes of other weights. Most fit the input's channels or columns.
const SHAPES: &[&[usize]] = &[
    &[],
    &[4],
    &[2],
    &[4, 3, 1],
    &[4, 1, 1],
    &[2, 3],
    &[24, 5],
    &[4, 1, 2, 1],
    &[5],
    &[3, 2],
];

/// Bytes in order, followed by zeros.
struct ByteSource<'a>(std::slice::Iter<'a, u8>);

impl ByteSource<'_> {
    fn next(&mut self) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0))
    }

    /// Returns an integer from -2 to 5.
    fn small(&mut self) -> i64 {
        self.next() as i64 % 8 - 2
    }

    fn pick<'b, T>(&mut self, all: &'b [T]) -> Option<&'b T> {
        all.get(self.next() % all.len().max(1))
    }

    /// Returns a list. In most cases it is valid for `purpose`.
    fn list(&mut self, purpose: &str) -> Vec<i64> {
        let fitting = LISTS
            .iter()
            .find(|(purposes, _)| purposes.split(' ').any(|known| known == purpose));
        match (self.next() % 4, fitting) {
            (1.., Some((_, lists))) => self.pick(lists).map_or_else(Vec::new, |list| list.to_vec()),
            _ => (0..self.next() % 9).map(|_| self.small()).collect(),
        }
    }

    /// Returns a tensor. In most cases it has one of [`SHAPES`].
    fn tensor(&mut self) -> Option<Tensor> {
        match self.next() % 4 {
            0 => {
                let shape: Vec<usize> = (0..self.next() % 5).map(|_| 1 + self.next() % 4).collect();
                self.of_shape(&[&shape])
            }
            _ => self.of_shape(SHAPES),
        }
    }

    fn of_shape(&mut self, shapes: &[&[usize]]) -> Option<Tensor> {
        let shape = self.pick(shapes)?.to_vec();
        let values = (0..shape.iter().product())
            .map(|_| self.small() as f32 / 2.0)
            .collect();
        Tensor::f32(shape, values).ok()
    }
}

/// Converts bytes to a network.
pub(super) fn network_from_bytes(data: &[u8]) -> ModelProto {
    let mut genes = ByteSource(data.iter());
    let opset = [13, 17, 18, 21, 23].get(genes.next() % 5).copied().unwrap_or(17);
    let (mut values, mut nodes, mut weights) = (vec![INPUT.to_owned()], Vec::new(), Vec::new());
    for number in 0..=genes.next() % NODES {
        let output = format!("v{number}");
        nodes.extend(next_node(&mut genes, &values, &mut weights, &output));
        values.push(output);
    }
    let last = values.last().map_or(INPUT, String::as_str);
    // Convert any type to float.
    nodes.push(node("Cast", &[last], &[OUTPUT]).with([int("to", data_type::FLOAT.into())]));
    let graph = GraphProto {
        name: "grown".into(),
        // Leave the output's dimensions to the reader.
        output: vec![without_shape(batched(OUTPUT, &[]))],
        node: nodes,
        initializer: weights,
        input: vec![batched(INPUT, &ROW)],
        ..GraphProto::default()
    };
    model(opset, graph)
}

fn without_shape(mut value: ValueInfo) -> ValueInfo {
    if let Some(tensor) = value.r#type.as_mut().and_then(|kind| kind.tensor_type.as_mut()) {
        tensor.shape = None;
    }
    value
}

fn next_node(
    genes: &mut ByteSource<'_>,
    values: &[String],
    weights: &mut Vec<TensorProto>,
    output: &str,
) -> Option<NodeProto> {
    let (names, reads, attributes) = genes.pick(OPERATORS)?;
    let names: Vec<&str> = names.split(' ').collect();
    let operator = *genes.pick(&names)?;
    let mut inputs: Vec<String> = Vec::new();
    for kind in reads.chars() {
        let name = format!("{output}w{}", inputs.len());
        match kind {
            '?' if genes.next().is_multiple_of(2) => break,
            '?' => continue,
            // Prefer the last value.
            'v' if !genes.next().is_multiple_of(4) => inputs.extend(values.last().cloned()),
            'v' => inputs.extend(genes.pick(values).cloned()),
            kind => {
                weights.push(constant(genes, kind, &name)?);
                inputs.push(name);
            }
        }
    }
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let mut chosen = Vec::new();
    for name in *attributes {
        if NEEDED.contains(name) || genes.next() % 4 == 3 {
            chosen.push(attribute(genes, name));
        }
    }
    Some(node(operator, &inputs, &[output]).with(chosen))
}

fn constant(genes: &mut ByteSource<'_>, kind: char, name: &str) -> Option<TensorProto> {
    Some(match kind {
        'a' | 'i' | 'k' | 'p' => integers(name, &genes.list(&kind.to_string())),
        'n' => initializer(name, &Tensor::i64([], vec![genes.small()]).ok()?),
        'f' => initializer(name, &Tensor::f32([], vec![genes.small() as f32]).ok()?),
        'c' => initializer(name, &genes.of_shape(KERNELS)?),
        'm' => initializer(name, &genes.of_shape(MATRICES)?),
        _ => initializer(name, &genes.tensor()?),
    })
}

fn attribute(genes: &mut ByteSource<'_>, name: &str) -> AttributeProto {
    match name {
        "alpha" | "beta" | "lambd" | "bias" | "epsilon" => float(name, genes.small() as f32 / 4.0),
        "axes" | "perm" | "kernel_shape" | "strides" | "pads" | "dilations" | "output_padding" => {
            ints(name, &genes.list(name))
        }
        // Codes of element types.
        "to" => int(name, (genes.next() % 17) as i64),
        _ => int(name, genes.small()),
    }
}

/// Returns valid inputs for each operator in an older and a newer opset.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (family, (names, ..)) in (0_u8..).zip(OPERATORS) {
        for (operator, _) in (0_u8..).zip(names.split(' ')) {
            for version in [1, 4] {
                seeds.extend(
                    (0..11_u8)
                        .map(|fit| [&[version, 0, family, operator], &[1, fit].repeat(12)[..]].concat()),
                );
            }
        }
    }
    seeds
}
