//! Random cases for all operators.

use super::draw::{Case, Draw};
use super::movement::{
    blocks, constant_of_shape, expand, flatten, gather, gather_elements, gather_nd, join, one_hot, pad,
    reshape, resize, scatter_nd, slice, split, squeeze, tile, transpose, triangle,
};
use crate::build::{float, int, ints, text};

/// Returns a case for the operator, or `None` if the operator has no recipe.
pub(super) fn draw(operator: &'static str, mut draw: Draw) -> Option<Case> {
    let recipe: fn(&mut Draw) = match operator {
        "Abs" | "Ceil" | "Celu" | "Cos" | "Elu" | "Erf" | "Exp" | "Floor" | "Gelu" | "HardSigmoid"
        | "HardSwish" | "Identity" | "IsInf" | "IsNaN" | "LeakyRelu" | "Log" | "Mish" | "Neg"
        | "Reciprocal" | "Relu" | "Round" | "Selu" | "Shrink" | "Sigmoid" | "Sign" | "Sin" | "Size"
        | "Shape" | "Softplus" | "Softsign" | "Sqrt" | "Swish" | "Tan" | "Tanh" | "ThresholdedRelu" => unary,
        "Not" => |draw| {
            draw.dtype = 9;
            unary(draw);
        },
        "And" | "Or" | "Xor" => |draw| {
            draw.dtype = 9;
            binary(draw);
        },
        "Add" | "Div" | "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Mul" | "Pow"
        | "PRelu" | "Sub" => binary,
        "Max" | "Mean" | "Min" | "Sum" => several,
        "Mod" => modulo,
        "Where" => choice,
        "Cast" | "CastLike" => cast,
        "Clip" => clip,
        "Dropout" => dropout,
        name if name.starts_with("Reduce") => reduce,
        "ArgMax" | "ArgMin" => extreme,
        "DequantizeLinear" | "QuantizeLinear" => quantization,
        "CumSum" => cumulative,
        "TopK" => top,
        "Hardmax" | "LogSoftmax" | "Softmax" | "LpNormalization" => along,
        "BatchNormalization"
        | "InstanceNormalization"
        | "GroupNormalization"
        | "LRN"
        | "MeanVarianceNormalization" => by_channel,
        "LayerNormalization" | "RMSNormalization" => layer,
        "Conv" | "ConvTranspose" => convolution,
        "AveragePool" | "LpPool" | "MaxPool" => pool,
        "GlobalAveragePool" | "GlobalLpPool" | "GlobalMaxPool" => |draw| {
            let rank = 3 + draw.below(3);
            let mut dims = vec![];
            dims.extend(draw.sizes(rank));
            draw.data(&dims);
        },
        "MatMul" => product,
        "Gemm" => matrices,
        "Einsum" => equation,
        "Attention" => attention,
        "Concat" => join,
        "Split" => split,
        "Slice" => slice,
        "Pad" => pad,
        "Gather" => gather,
        "GatherElements" => gather_elements,
        "GatherND" => gather_nd,
        "ScatterND" => scatter_nd,
        "Trilu" => triangle,
        "Transpose" => transpose,
        "Reshape" => reshape,
        "Flatten" => flatten,
        "Squeeze" | "Unsqueeze" => squeeze,
        "DepthToSpace" | "SpaceToDepth" => blocks,
        "Tile" => tile,
        "Expand" => expand,
        "Resize" | "Upsample" => resize,
        "OneHot" => one_hot,
        "ConstantOfShape" => constant_of_shape,
        _ => return None,
    };
    recipe(&mut draw);
    Some(draw.done())
}

/// Quantizes and dequantizes numbers. For `QuantizeLinear`, a layer in between is computed in integers by
/// engines.
fn quantization(draw: &mut Draw) {
    draw.dtype = 1;
    let axes = 1 + draw.below(2);
    let mut dims = vec![draw.of(&[1, 2, 3]), draw.of(&[1, 3, 8, 17])];
    dims.extend((0..axes).map(|_| draw.of(&[1, 2, 5, 8, 13])));
    draw.data(&dims);
    let code = draw.of(&[2, 3]);
    let [scale, zero_point] = draw.scale(code);
    let integers = draw.first("QuantizeLinear", &["x", &scale, &zero_point], vec![]);
    if draw.operator == "DequantizeLinear" {
        draw.inputs = vec![integers, scale, zero_point];
        return;
    }
    let dequantized = draw.first("DequantizeLinear", &[&integers, &scale, &zero_point], vec![]);
    let made = layer_on_integers(draw, &dims, &dequantized);
    let [scale, zero_point] = draw.scale(code);
    draw.inputs = vec![made, scale, zero_point];
}

/// Adds a layer that reads dequantized numbers of `[batch, channels, ..]`.
fn layer_on_integers(draw: &mut Draw, dims: &[usize], input: &str) -> String {
    let axes = dims.len() - 2;
    let channels = dims[1];
    let window = || {
        vec![
            ints("kernel_shape", &vec![2; axes]),
            ints("pads", &vec![1; 2 * axes]),
        ]
    };
    match draw.below(9) {
        0 | 1 => {
            let groups = if draw.flip() { channels } else { 1 };
            let kernel = [&[channels, channels / groups][..], &vec![2; axes]].concat();
            let weight = draw.quantized_weight(&kernel);
            let attributes = [window(), vec![int("group", groups as i64)]].concat();
            let made = draw.first("Conv", &[input, &weight], attributes);
            if draw.flip() {
                draw.first("Relu", &[&made], vec![])
            } else {
                made
            }
        }
        2 => {
            let columns = draw.of(&[1, 3, 16, 17]);
            let weight = draw.quantized_weight(&[dims[dims.len() - 1], columns]);
            draw.first("MatMul", &[input, &weight], vec![])
        }
        3 => draw.first("MaxPool", &[input], window()),
        4 => draw.first("AveragePool", &[input], window()),
        5 => draw.first("GlobalAveragePool", &[input], vec![]),
        6 => draw.first("Add", &[input, input], vec![]),
        7 => draw.first("Concat", &[input, input], vec![int("axis", 1)]),
        _ => draw.first("Sigmoid", &[input], vec![]),
    }
}

pub(super) fn any(draw: &mut Draw, least: usize) -> Vec<usize> {
    let rank = least + draw.below(4);
    draw.sizes(rank)
}

fn unary(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data(&dims);
}

fn binary(draw: &mut Draw) {
    let dims = any(draw, 1);
    let partner = draw.partner(&dims);
    if draw.flip() || draw.operator == "PRelu" {
        draw.data(&dims);
        draw.weight(&partner);
    } else {
        draw.weight(&partner);
        draw.data(&dims);
    }
}

fn several(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data(&dims);
    for _ in 0..draw.below(3) {
        let partner = draw.partner(&dims);
        draw.weight(&partner);
    }
}

fn modulo(draw: &mut Draw) {
    binary(draw);
    draw.with(int("fmod", i64::from(matches!(draw.dtype, 1 | 10 | 11))));
}

fn choice(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data_as(&dims, 9);
    for _ in 0..2 {
        let partner = draw.partner(&dims);
        draw.weight(&partner);
    }
}

fn cast(draw: &mut Draw) {
    unary(draw);
    if draw.operator == "Cast" {
        let to = draw.of(&[1, 2, 3, 6, 7, 9, 10, 11, 16]);
        draw.with(int("to", to));
    } else {
        let to = draw.of(&[1, 2, 6, 7, 10, 11]);
        draw.weight_as(&[1], to);
    }
}

fn clip(draw: &mut Draw) {
    unary(draw);
    if draw.opset < 11 {
        draw.with(float("min", -1.0));
    } else {
        draw.number(-1.0);
        draw.number(2.0);
    }
}

fn dropout(draw: &mut Draw) {
    unary(draw);
    draw.outputs = 2;
}

fn some_axes(draw: &mut Draw, rank: usize) -> Vec<i64> {
    let chosen: Vec<usize> = (0..rank).filter(|_| draw.below(2) == 0).collect();
    let from_end = draw.flip();
    let axis = |axis: usize| {
        if from_end {
            axis as i64 - rank as i64
        } else {
            axis as i64
        }
    };
    chosen.into_iter().map(axis).collect()
}

fn reduce(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data(&dims);
    let axes = some_axes(draw, dims.len());
    let keep = draw.below(2) as i64;
    draw.with(int("keepdims", keep));
    let as_input = draw.opset >= if draw.operator == "ReduceSum" { 13 } else { 18 };
    if as_input {
        draw.list(&axes);
        let noop = draw.below(2) as i64;
        draw.with(int("noop_with_empty_axes", noop));
    } else if !axes.is_empty() {
        draw.with(ints("axes", &axes));
    }
}

fn extreme(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data(&dims);
    let axis = draw.axis(dims.len());
    let keep = draw.below(2) as i64;
    let last = draw.below(2) as i64;
    draw.with(int("axis", axis));
    draw.with(int("keepdims", keep));
    if draw.opset >= 12 {
        draw.with(int("select_last_index", last));
    }
}

fn cumulative(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data(&dims);
    let axis = draw.axis(dims.len());
    draw.list(&[axis]);
    for name in ["exclusive", "reverse"] {
        let value = draw.below(2) as i64;
        draw.with(int(name, value));
    }
}

fn top(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data(&dims);
    let axis = draw.below(dims.len());
    let count = 1 + draw.below(dims[axis]) as i64;
    draw.with(int("axis", axis as i64));
    if draw.opset < 10 {
        draw.with(int("k", count));
    } else {
        draw.list(&[count]);
    }
    if draw.opset >= 11 {
        for name in ["largest", "sorted"] {
            let value = draw.below(2) as i64;
            draw.with(int(name, value));
        }
    }
    draw.outputs = 2;
}

fn along(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data(&dims);
    let axis = draw.axis(dims.len());
    draw.with(int("axis", axis));
}

fn by_channel(draw: &mut Draw) {
    let dims = any(draw, 3);
    draw.data(&dims);
    let channels = dims[1];
    match draw.operator {
        "BatchNormalization" => (0..4).for_each(|_| draw.weight(&[channels])),
        "InstanceNormalization" => (0..2).for_each(|_| draw.weight(&[channels])),
        "GroupNormalization" => {
            let groups = draw.of(&[1, channels]);
            draw.with(int("num_groups", groups as i64));
            let width = if draw.opset >= 21 { channels } else { groups };
            (0..2).for_each(|_| draw.weight(&[width]));
        }
        "LRN" => {
            let size = draw.of(&[1, 3, 5, 9]);
            draw.with(int("size", size));
        }
        _ => {
            let axes = some_axes(draw, dims.len());
            draw.with(ints("axes", &axes));
        }
    }
}

fn layer(draw: &mut Draw) {
    let dims = any(draw, 2);
    draw.data(&dims);
    let axis = 1 + draw.below(dims.len() - 1);
    draw.with(int("axis", axis as i64));
    draw.weight(&dims[axis..]);
    if draw.operator == "LayerNormalization" {
        if draw.flip() {
            draw.weight(&dims[axis..]);
        }
        draw.outputs = 3;
    }
}

/// Adds the attributes of a window. The number of axes is the length of `kernel`.
fn window(draw: &mut Draw, kernel: &[usize]) {
    let axes = kernel.len();
    let strides = draw.ints(axes, 1, 4);
    let dilations = draw.ints(axes, 1, 2);
    if draw.flip() {
        // Includes strides larger than the input.
        let far = draw.below(2) as i64 * 20;
        let strides: Vec<i64> = strides.iter().map(|stride| stride + far).collect();
        draw.with(ints("strides", &strides));
    }
    if draw.flip()
        && (draw.opset >= 19
            || draw.operator.starts_with("Conv")
            || draw.operator == "MaxPool" && draw.opset >= 10)
    {
        draw.with(ints("dilations", &dilations));
    }
    match draw.below(4) {
        0 => {}
        1 if draw.operator != "ConvTranspose" => {
            let how = draw.of(&["SAME_UPPER", "SAME_LOWER", "VALID"]);
            draw.with(text("auto_pad", how));
        }
        _ => {
            let most = kernel.iter().min().map_or(0, |&size| size as i64 - 1);
            let most = if draw.operator.starts_with("Conv") {
                most + 2
            } else {
                most
            };
            let pads = draw.ints(2 * axes, 0, most);
            draw.with(ints("pads", &pads));
        }
    }
}

fn convolution(draw: &mut Draw) {
    let axes = 1 + draw.below(3);
    let batch = draw.of(&[1, 2, 3]);
    let groups = draw.of(&[1, 1, 2, 3]);
    let each = draw.of(&[1, 2, 5]);
    let filters = draw.of(&[1, 3, 4, 16]);
    let mut dims = vec![batch, groups * each];
    dims.extend((0..axes).map(|_| draw.of(&[1, 2, 5, 8, 13])));
    let kernel: Vec<usize> = (0..axes).map(|_| draw.of(&[1, 2, 3, 5])).collect();
    let head = match draw.operator {
        "Conv" => [groups * filters, each],
        _ => [groups * each, filters],
    };
    draw.data(&dims);
    draw.weight(&[&head[..], &kernel].concat());
    if draw.flip() {
        draw.weight(&[groups * filters]);
    }
    draw.with(int("group", groups as i64));
    draw.with(ints(
        "kernel_shape",
        &kernel.iter().map(|&size| size as i64).collect::<Vec<_>>(),
    ));
    window(draw, &kernel);
    if draw.operator == "ConvTranspose" && draw.flip() {
        draw.with(ints("output_padding", &vec![1; axes]));
    }
}

fn pool(draw: &mut Draw) {
    let axes = 1 + draw.below(3);
    let mut dims = vec![draw.of(&[1, 2, 3]), draw.of(&[1, 3, 17])];
    dims.extend((0..axes).map(|_| draw.of(&[1, 2, 5, 8, 13])));
    let kernel: Vec<usize> = (0..axes).map(|_| draw.of(&[1, 2, 3, 4])).collect();
    draw.data(&dims);
    draw.with(ints(
        "kernel_shape",
        &kernel.iter().map(|&size| size as i64).collect::<Vec<_>>(),
    ));
    window(draw, &kernel);
    let up = draw.below(2) as i64;
    match draw.operator {
        "LpPool" if draw.opset >= 18 => draw.with(int("ceil_mode", up)),
        "AveragePool" | "MaxPool" if draw.opset >= 10 => draw.with(int("ceil_mode", up)),
        _ => {}
    }
    if draw.operator == "AveragePool" {
        draw.with(int("count_include_pad", 1 - up));
    }
    if draw.operator == "MaxPool" && draw.opset >= 8 {
        draw.outputs = 2;
        let order = draw.below(2) as i64;
        draw.with(int("storage_order", order));
    }
}

fn product(draw: &mut Draw) {
    let rows = draw.size();
    let depth = draw.size();
    let columns = draw.size();
    let lead = any(draw, 0);
    let partner = draw.partner(&lead);
    match draw.below(3) {
        0 => {
            draw.data(&[&lead[..], &[rows, depth]].concat());
            draw.weight(&[&partner[..], &[depth, columns]].concat());
        }
        1 => {
            draw.weight(&[&partner[..], &[rows, depth]].concat());
            draw.data(&[&[2], &lead[..], &[depth, columns]].concat());
        }
        _ => {
            draw.data(&[&[rows], &lead[..], &[depth]].concat());
            draw.weight(&[depth]);
        }
    }
}

fn matrices(draw: &mut Draw) {
    let rows = draw.size();
    let depth = draw.size();
    let columns = draw.size();
    let turned = draw.flip();
    draw.data(&[rows, depth]);
    draw.weight(&if turned {
        [columns, depth]
    } else {
        [depth, columns]
    });
    draw.with(int("transB", i64::from(turned)));
    if draw.flip() || draw.opset < 11 {
        let sum = draw.partner(&[rows, columns]);
        draw.weight(&sum);
    }
    let alpha = draw.of(&[0.0, 1.0, 0.5]);
    let beta = draw.of(&[0.0, 1.0, 2.0]);
    draw.with(float("alpha", alpha));
    draw.with(float("beta", beta));
}

fn equation(draw: &mut Draw) {
    let n = draw.size();
    let i = draw.size();
    let j = draw.size();
    let k = draw.size();
    let (equation, left, right) = draw.of(&[
        ("nij,jk->nik", 3, 2),
        ("nij,nkj->nik", 3, 3),
        ("nij,j->ni", 3, 1),
        ("nij,ij->n", 3, 4),
        ("nij->nji", 3, 0),
        ("nij->n", 3, 0),
        ("nii->ni", 5, 0),
    ]);
    draw.data(&if left == 5 { [n, i, i] } else { [n, i, j] });
    match right {
        0 => {}
        1 => draw.weight(&[j]),
        2 => draw.weight(&[j, k]),
        3 => draw.weight(&[n, k, j]),
        _ => draw.weight(&[i, j]),
    }
    draw.with(text("equation", equation));
}

fn attention(draw: &mut Draw) {
    let batch = draw.of(&[1, 2]);
    let heads = draw.of(&[1, 2, 3]);
    let tokens = draw.size();
    let width = draw.size();
    draw.opset = draw.of(&[23, 24]);
    if draw.flip() {
        (0..3).for_each(|_| draw.data(&[batch, tokens, heads * width]));
        draw.with(int("q_num_heads", heads as i64));
        draw.with(int("kv_num_heads", heads as i64));
    } else {
        (0..3).for_each(|_| draw.data(&[batch, heads, tokens, width]));
    }
    if draw.flip() {
        draw.weight(&[tokens, tokens]);
    }
    let causal = draw.below(2) as i64;
    draw.with(int("is_causal", causal));
}
