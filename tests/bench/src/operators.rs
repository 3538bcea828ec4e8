//! Processor time of each admitted operator by element type, with ONNX Runtime on a single thread. Prints the
//! table of `models/graph/src/cost.rs`.

use crate::report::Report;
use anyhow::{Context, Result};
use frostline_engine::{Session, SessionOptions};
use frostline_graph::Model;
use frostline_graph::build::{Axis, float, initializer, int, integers, ints, model, node, text, value};
use frostline_graph::onnx::{AttributeProto, GraphProto, NodeProto, TensorProto};
use frostline_tensor::Tensor;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};

/// Element types of the table: f32, f16, f64, i32, i64, u8, i8 and bool, as numbered by ONNX.
const TYPES: [i32; 8] = [1, 10, 11, 6, 7, 2, 3, 9];

/// Executions per network. The fastest counts.
const RUNS: usize = 5;

/// Operators whose unit is a multiply-add. The unit of the others is an element.
const PRODUCTS: [&str; 6] = ["Attention", "Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"];

/// Lowest price of an element. Faster kernels are limited by memory, which other lanes use as well.
const LEAST: f64 = 50.0;

/// Operators with a single input, with the first opset that is measured.
const UNARY: [(i64, &str); 4] = [
    (
        17,
        "Abs Ceil Celu Cos Dropout Elu Erf Exp Floor HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Neg Not \
         Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Softplus Softsign Sqrt Tan Tanh ThresholdedRelu",
    ),
    (18, "Mish"),
    (20, "Gelu"),
    (24, "Swish"),
];

/// Operators with two inputs of the same shape.
const BINARY: &str =
    "Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul Or PRelu Pow Sub Sum Xor";

/// Operators that reduce the axes of the attribute `axes`.
const REDUCTIONS: &str = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSumSquare";

/// An execution of an operator.
struct Recipe {
    operator: &'static str,
    opset: i64,
    /// Shape of the measured tensor `x`.
    dims: Vec<usize>,
    /// Inputs: `x`, its truth values `b`, ones of a shape like `64x3x3`, integers like `[1,2]`, an f32 number
    /// like `.5`, positions along the first axis (`indices`), the factors of an Upsample (`scales`), or `-` for
    /// an omitted input.
    inputs: &'static str,
    attributes: Vec<AttributeProto>,
    /// Number of outputs.
    outputs: usize,
    /// Multiply-adds or elements.
    units: usize,
}

fn recipe(operator: &'static str, opset: i64, dims: &[usize], inputs: &'static str) -> Recipe {
    Recipe {
        operator,
        opset,
        dims: dims.to_vec(),
        inputs,
        attributes: Vec::new(),
        outputs: 1,
        units: dims.iter().product(),
    }
}

impl Recipe {
    fn with<const N: usize>(mut self, attributes: [AttributeProto; N]) -> Self {
        self.attributes.extend(attributes);
        self
    }

    fn units(mut self, units: usize) -> Self {
        self.units = units;
        self
    }
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let casts = TYPES.map(|kind| cast_seconds(kind).unwrap_or(0.0));
    let mut seconds: BTreeMap<&str, [Option<f64>; TYPES.len()]> = BTreeMap::new();
    for recipe in recipes() {
        let row = seconds.entry(recipe.operator).or_default();
        for ((kind, cast), slowest) in TYPES.into_iter().zip(casts).zip(row) {
            // Without a kernel for this type, the session does not open.
            if let Ok(time) = recipe.seconds(kind, cast) {
                *slowest = Some(slowest.unwrap_or(0.0).max(time / recipe.units as f64));
            }
        }
    }
    let unit = seconds
        .get("Conv")
        .and_then(|row| row[0])
        .context("no convolution")?;
    println!(
        "// a convolution in f32: {:.0} billion multiply-adds per second",
        1e-9 / unit
    );
    for (operator, row) in &seconds {
        let least = if PRODUCTS.contains(operator) { 1.0 } else { LEAST };
        let prices = row.map(|time| time.map_or(0, |time| rounded((time / unit).max(least))));
        println!("    ({operator:?}, {prices:?}),");
    }
    report.set("operators_conv_gmac_per_s", 1e-9 / unit);
    report.set("operators_measured", seconds.len());
    Ok(())
}

/// Rounds to two digits.
fn rounded(price: f64) -> u32 {
    let scale = 10_f64.powf(price.log10().floor() - 1.0).max(1.0);
    ((price / scale).round() * scale) as u32
}

impl Recipe {
    /// Returns the time of the operator for elements of type `kind`, excluding the casts, which take `cast`
    /// seconds per element.
    fn seconds(&self, kind: i32, cast: f64) -> Result<f64> {
        let to = |kind: i32| int("to", kind.into());
        let mut weights: Vec<TensorProto> = Vec::new();
        let mut nodes = vec![
            node("Cast", &["x0"], &["x"]).with([to(kind)]),
            node("Cast", &["x0"], &["b"]).with([to(9)]),
        ];
        let names: BTreeSet<&str> = self.inputs.split(' ').collect();
        for name in names {
            if let Some(values) = name.strip_prefix('[') {
                let values = values.trim_end_matches(']').split(',').map(str::parse);
                weights.push(integers(name, &values.collect::<Result<Vec<i64>, _>>()?));
            } else if name == "indices" {
                let indices = (0..self.dims.first().map_or(0, |size| *size as i64))
                    .rev()
                    .collect::<Vec<_>>();
                weights.push(initializer(name, &Tensor::i64(self.dims.as_slice(), indices)?));
            } else if name == "scales" {
                weights.push(initializer(name, &Tensor::f32([4], vec![1.0, 1.0, 2.0, 2.0])?));
            } else if name.starts_with('.') {
                weights.push(initializer(name, &Tensor::f32([], vec![name.parse()?])?));
            } else if name.starts_with(|first: char| first.is_ascii_digit()) {
                let dims = name
                    .split('x')
                    .map(str::parse)
                    .collect::<Result<Vec<usize>, _>>()?;
                let ones = Tensor::f32(dims.as_slice(), vec![1.0; dims.iter().product()])?;
                let raw = format!("{name} in f32");
                weights.push(initializer(&raw, &ones));
                nodes.push(node("Cast", &[&raw], &[name]).with([to(kind)]));
            }
        }
        let inputs: Vec<&str> = self
            .inputs
            .split(' ')
            .map(|name| if name == "-" { "" } else { name })
            .collect();
        let outputs: Vec<&str> = ["o", "p"].into_iter().take(self.outputs).collect();
        nodes.push(node(self.operator, &inputs, &outputs).with(self.attributes.clone()));
        nodes.push(node("Cast", &["o"], &["y"]).with([to(1)]));
        let (seconds, made) = measure(self.opset, nodes, weights, &self.dims)?;
        let converted = self.dims.iter().product::<usize>() + made;
        Ok(seconds - cast * converted as f64)
    }
}

/// Returns the seconds to convert an element from or to f32.
fn cast_seconds(kind: i32) -> Result<f64> {
    let cast = |from: &str, to: &str, kind: i32| node("Cast", &[from], &[to]).with([int("to", kind.into())]);
    let nodes = vec![cast("x0", "t", kind), cast("t", "y", 1)];
    let (seconds, made) = measure(17, nodes, Vec::new(), &[1 << 20])?;
    Ok(seconds / (2 * made) as f64)
}

/// Returns the processor time of the fastest execution, and the number of elements in the output.
fn measure(
    opset: i64,
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
    dims: &[usize],
) -> Result<(f64, usize)> {
    let axes: Vec<Axis> = dims.iter().map(|size| Axis::Fixed(*size)).collect();
    let graph = GraphProto {
        name: "operator".into(),
        node: nodes,
        initializer: weights,
        input: vec![value("x0", 1, &axes)],
        output: vec![value("y", 1, &[])],
        ..GraphProto::default()
    };
    let bytes = Model::from_proto(model(opset, graph))?.to_bytes()?;
    let mut session = Session::open(&bytes, &SessionOptions::default())?;
    let count: usize = dims.iter().product();
    let values = (0..count).map(|index| (index as f32 * 0.618_034).fract() + 1.0);
    let input = Tensor::f32(dims, values.collect())?;
    let mut best = (f64::INFINITY, 0);
    for _ in 0..RUNS {
        let begun = thread_seconds();
        let outputs = session.run(&[("x0", &input)])?;
        let seconds = thread_seconds() - begun;
        let (_, output) = outputs.first().context("no output")?;
        best = (best.0.min(seconds), output.byte_len() / size_of::<f32>());
    }
    Ok(best)
}

fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn recipes() -> Vec<Recipe> {
    [elementwise(), along_axes(), windows(), movements(), products()]
        .into_iter()
        .flatten()
        .collect()
}

/// Operators that compute each element from the elements at the same position.
fn elementwise() -> Vec<Recipe> {
    let wide = &[1 << 20];
    let unary = UNARY.into_iter().flat_map(|(opset, names)| {
        names
            .split(' ')
            .map(move |operator| recipe(operator, opset, wide, "x"))
    });
    let binary = BINARY
        .split(' ')
        .map(|operator| recipe(operator, 17, wide, "x x"));
    let others = [
        recipe("Cast", 17, wide, "x").with([int("to", 7)]),
        recipe("Cast", 17, wide, "x").with([int("to", 10)]),
        recipe("CastLike", 17, wide, "x [1]"),
        recipe("Clip", 17, wide, "x 1"),
        recipe("Mod", 17, wide, "x x").with([int("fmod", 1)]),
        recipe("Where", 17, wide, "b x x"),
        recipe("QuantizeLinear", 17, wide, "x .02"),
        recipe("DequantizeLinear", 17, wide, "x .02"),
    ];
    unary.chain(binary).chain(others).collect()
}

/// Reductions, normalizations and other operators that combine the elements along axes.
fn along_axes() -> Vec<Recipe> {
    let cube = &[64, 64, 256];
    let image = &[1, 64, 96, 96];
    let reductions = REDUCTIONS.split(' ').flat_map(|operator| {
        [1, 2].map(|axis| recipe(operator, 17, cube, "x").with([ints("axes", &[axis])]))
    });
    let sums = ["x [1]", "x [2]"].map(|inputs| recipe("ReduceSum", 17, cube, inputs));
    let extremes = ["ArgMax", "ArgMin"]
        .into_iter()
        .flat_map(|operator| [1, 2].map(|axis| recipe(operator, 17, cube, "x").with([int("axis", axis)])));
    let along = ["Hardmax", "LogSoftmax", "LpNormalization", "Softmax"].into_iter();
    let along = along
        .flat_map(|operator| [1, 2].map(|axis| recipe(operator, 17, cube, "x").with([int("axis", axis)])));
    let others = [
        recipe("CumSum", 17, cube, "x [1]"),
        Recipe {
            outputs: 2,
            ..recipe("TopK", 17, cube, "x [128]")
        },
        recipe("BatchNormalization", 17, image, "x 64 64 64 64"),
        recipe("InstanceNormalization", 17, image, "x 64 64"),
        recipe("GroupNormalization", 21, image, "x 64 64").with([int("num_groups", 8)]),
        recipe("LRN", 17, image, "x")
            .with([int("size", 5)])
            .units(5 * 64 * 96 * 96),
        recipe("MeanVarianceNormalization", 17, image, "x"),
        recipe("LayerNormalization", 17, cube, "x 256 256"),
        recipe("RMSNormalization", 23, cube, "x 256"),
    ];
    reductions
        .chain(sums)
        .chain(extremes)
        .chain(along)
        .chain(others)
        .collect()
}

/// Pools, whose units are the elements that the windows read.
fn windows() -> Vec<Recipe> {
    let image = &[1, 64, 96, 96];
    let pools = ["AveragePool", "LpPool", "MaxPool"].map(|operator| {
        let window = [ints("kernel_shape", &[3, 3]), ints("pads", &[1, 1, 1, 1])];
        recipe(operator, 17, image, "x")
            .with(window)
            .units(9 * 64 * 96 * 96)
    });
    let all = ["GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"];
    let all = all.map(|operator| recipe(operator, 17, image, "x"));
    pools.into_iter().chain(all).collect()
}

/// Operators that move elements.
fn movements() -> Vec<Recipe> {
    let wide = &[1024, 1024];
    let image = &[1, 64, 128, 128];
    vec![
        recipe("Concat", 17, wide, "x x")
            .with([int("axis", 1)])
            .units(2 << 20),
        recipe("DepthToSpace", 17, image, "x").with([int("blocksize", 2)]),
        recipe("SpaceToDepth", 17, image, "x").with([int("blocksize", 2)]),
        recipe("Expand", 17, &[1024, 1], "x [1024,1024]").units(1 << 20),
        recipe("Flatten", 17, wide, "x"),
        recipe("Gather", 17, wide, "x [1,0,3,2,5,4,7,6,9,8]").with([int("axis", 1)]),
        recipe("GatherElements", 17, &[1 << 20, 1], "x indices"),
        recipe("GatherND", 17, &[1 << 20, 1], "x indices"),
        recipe("ScatterND", 17, &[1 << 20, 1], "x indices x"),
        recipe("OneHot", 17, &[1 << 12], "x [256] 2").units(1 << 20),
        recipe("Pad", 17, wide, "x [0,1,0,1]").with([text("mode", "reflect")]),
        recipe("Reshape", 17, wide, "x [-1]"),
        recipe("Resize", 17, image, "x - - [1,64,200,200]")
            .with([text("mode", "linear")])
            .units(64 * 200 * 200),
        recipe("Resize", 17, image, "x - - [1,64,200,200]")
            .with([text("mode", "cubic")])
            .units(64 * 200 * 200),
        recipe("Upsample", 9, image, "x scales")
            .with([text("mode", "linear")])
            .units(4 << 20),
        recipe("Slice", 17, wide, "x [0] [1024] [1] [2]"),
        Recipe {
            outputs: 2,
            ..recipe("Split", 17, wide, "x").with([int("axis", 1)])
        },
        recipe("Squeeze", 17, &[1, 1 << 20], "x [0]"),
        recipe("Unsqueeze", 17, wide, "x [0]"),
        recipe("Tile", 17, &[1024, 4], "x [1,256]").units(1 << 20),
        recipe("Transpose", 17, &[64, 128, 128], "x").with([ints("perm", &[2, 1, 0])]),
        recipe("Transpose", 17, &[1024, 1024], "x").with([ints("perm", &[1, 0])]),
        recipe("Trilu", 17, wide, "x"),
    ]
}

/// Operators whose unit is a multiply-add.
fn products() -> Vec<Recipe> {
    let image = &[1, 64, 56, 56];
    let window = || [ints("kernel_shape", &[3, 3]), ints("pads", &[1, 1, 1, 1])];
    vec![
        recipe("Conv", 17, image, "x 64x64x3x3")
            .with(window())
            .units(64 * 56 * 56 * 64 * 9),
        recipe("ConvTranspose", 17, image, "x 64x64x3x3")
            .with(window())
            .units(64 * 56 * 56 * 64 * 9),
        recipe("MatMul", 17, &[256, 2048], "x 2048x2048").units(1 << 30),
        recipe("Gemm", 17, &[256, 2048], "x 2048x2048").units(1 << 30),
        recipe("Einsum", 17, &[8, 128, 128], "x x")
            .with([text("equation", "bij,bjk->bik")])
            .units(8 << 21),
        recipe("Attention", 23, &[1, 256, 512], "x x x")
            .with([int("q_num_heads", 8), int("kv_num_heads", 8), float("scale", 0.1)])
            .units(2 * 256 * 512 * 256),
    ]
}
