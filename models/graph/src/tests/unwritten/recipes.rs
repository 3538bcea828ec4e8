//! What each operator is given.

use super::draw::{Case, Draw};
use crate::build::{float, int, ints, text};

/// A case of the operator; `None` for one that has no recipe.
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
        "DequantizeLinear" | "QuantizeLinear" => quantisation,
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
            let (rank, mut dims) = (3 + draw.below(3), vec![]);
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

/// Quantised and dequantised numbers; for `QuantizeLinear` with a layer between, which engines compute in integers.
fn quantisation(draw: &mut Draw) {
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
    let dequantised = draw.first("DequantizeLinear", &[&integers, &scale, &zero_point], vec![]);
    let made = layer_on_integers(draw, &dims, &dequantised);
    let [scale, zero_point] = draw.scale(code);
    draw.inputs = vec![made, scale, zero_point];
}

/// A layer on dequantised numbers of `[batch, channels, ..]`.
fn layer_on_integers(draw: &mut Draw, dims: &[usize], input: &str) -> String {
    let (axes, channels) = (dims.len() - 2, dims[1]);
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
            let weight = draw.quantised_weight(&kernel);
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
            let weight = draw.quantised_weight(&[dims[dims.len() - 1], columns]);
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

fn any(draw: &mut Draw, least: usize) -> Vec<usize> {
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
    let (axis, keep, last) = (draw.axis(dims.len()), draw.below(2) as i64, draw.below(2) as i64);
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

/// The attributes of a window along so many axes.
fn window(draw: &mut Draw, kernel: &[usize]) {
    let axes = kernel.len();
    let (strides, dilations) = (draw.ints(axes, 1, 4), draw.ints(axes, 1, 2));
    if draw.flip() {
        // Beyond the input, too.
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
    let (batch, groups) = (draw.of(&[1, 2, 3]), draw.of(&[1, 1, 2, 3]));
    let (each, filters) = (draw.of(&[1, 2, 5]), draw.of(&[1, 3, 4, 16]));
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
    let (rows, depth, columns) = (draw.size(), draw.size(), draw.size());
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
    let (rows, depth, columns) = (draw.size(), draw.size(), draw.size());
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
    let (alpha, beta) = (draw.of(&[0.0, 1.0, 0.5]), draw.of(&[0.0, 1.0, 2.0]));
    draw.with(float("alpha", alpha));
    draw.with(float("beta", beta));
}

fn equation(draw: &mut Draw) {
    let (n, i, j, k) = (draw.size(), draw.size(), draw.size(), draw.size());
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
    let (batch, heads, tokens, width) = (draw.of(&[1, 2]), draw.of(&[1, 2, 3]), draw.size(), draw.size());
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

fn join(draw: &mut Draw) {
    let dims = any(draw, 2);
    let axis = 1 + draw.below(dims.len() - 1);
    let parts = draw.below(3);
    draw.data(&dims);
    for _ in 0..parts {
        if draw.flip() {
            draw.data(&dims);
        } else {
            let mut other = dims.clone();
            other[axis] = draw.size();
            draw.weight(&other);
        }
    }
    draw.with(int("axis", axis as i64));
}

fn split(draw: &mut Draw) {
    let mut dims = any(draw, 2);
    let axis = 1 + draw.below(dims.len() - 1);
    let parts = 1 + draw.below(3);
    dims[axis] = parts + draw.below(5);
    draw.data(&dims);
    draw.with(int("axis", axis as i64));
    draw.outputs = parts;
    let last = dims[axis] - (parts - 1);
    let sizes: Vec<i64> = (0..parts)
        .map(|part| if part == 0 { last as i64 } else { 1 })
        .collect();
    match draw.below(2) {
        0 if draw.opset >= 18 => draw.with(int("num_outputs", parts as i64)),
        _ if draw.opset >= 13 => draw.list(&sizes),
        _ => draw.with(ints("split", &sizes)),
    }
}

fn slice(draw: &mut Draw) {
    let dims = any(draw, 2);
    let count = 1 + draw.below(dims.len() - 1);
    let axes: Vec<i64> = (1..=count as i64).collect();
    draw.data(&dims);
    // From before the beginning to beyond the end, in steps either way.
    let (starts, ends) = (draw.ints(count, -20, 20), draw.ints(count, -20, 20));
    if draw.opset < 10 {
        draw.with(ints("axes", &axes));
        draw.with(ints("starts", &starts));
        draw.with(ints("ends", &ends));
        return;
    }
    draw.list(&starts);
    draw.list(&ends);
    draw.list(&axes);
    let steps: Vec<i64> = (0..count).map(|_| draw.of(&[1, 1, 2, -1, -3, 30])).collect();
    draw.list(&steps);
}

fn pad(draw: &mut Draw) {
    let dims = any(draw, 2);
    let rank = dims.len();
    let mode = draw.of(&["constant", "reflect", "edge", "wrap"]);
    let mut pads = draw.ints(2 * rank, -2, 4);
    (pads[0], pads[rank]) = (0, 0);
    draw.data(&dims);
    draw.with(text(
        "mode",
        if draw.opset < 19 && mode == "wrap" {
            "edge"
        } else {
            mode
        },
    ));
    if draw.opset < 11 {
        draw.with(ints("pads", &pads));
    } else {
        draw.list(&pads);
    }
}

fn gather(draw: &mut Draw) {
    let dims = any(draw, 2);
    let axis = 1 + draw.below(dims.len() - 1);
    let size = dims[axis] as i64;
    let indices = any(draw, 0);
    draw.data(&dims);
    draw.indices(&indices, if draw.opset < 11 { 0 } else { -size }, size - 1);
    draw.with(int("axis", axis as i64));
}

fn gather_elements(draw: &mut Draw) {
    let dims = any(draw, 2);
    let axis = 1 + draw.below(dims.len() - 1);
    let size = dims[axis] as i64;
    let mut indices: Vec<usize> = dims.iter().map(|&size| 1 + draw.below(size)).collect();
    indices[axis] = draw.size();
    draw.data(&dims);
    draw.indices(&indices, -size, size - 1);
    draw.with(int("axis", axis as i64));
}

fn gather_nd(draw: &mut Draw) {
    let dims = any(draw, 2);
    let depth = 1 + draw.below(dims.len());
    let mut indices = any(draw, 0);
    indices.push(depth);
    draw.data(&dims);
    // Any element has a first one.
    draw.indices(&indices, 0, 0);
}

fn scatter_nd(draw: &mut Draw) {
    let dims = any(draw, 2);
    let count = draw.size();
    draw.data(&dims);
    draw.indices(&[count, 1], 0, 0);
    draw.weight(&[&[count], &dims[1..]].concat());
}

fn triangle(draw: &mut Draw) {
    let dims = any(draw, 2);
    draw.data(&dims);
    if draw.flip() {
        let diagonal = draw.ints(1, -20, 20);
        draw.indices(&[], diagonal[0], diagonal[0]);
    }
    let upper = draw.below(2) as i64;
    draw.with(int("upper", upper));
}

fn transpose(draw: &mut Draw) {
    let dims = any(draw, 1);
    let mut order: Vec<i64> = (0..dims.len() as i64).collect();
    for place in (1..order.len()).rev() {
        let other = draw.below(place + 1);
        order.swap(place, other);
    }
    draw.data(&dims);
    draw.with(ints("perm", &order));
}

fn reshape(draw: &mut Draw) {
    let dims = any(draw, 2);
    draw.data(&dims);
    let to = draw.of(&[&[0, -1][..], &[-1], &[0, 1, -1], &[-1, 1, 1]]);
    draw.list(to);
}

fn flatten(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data(&dims);
    let axis = draw.below(dims.len() + 1) as i64;
    draw.with(int("axis", axis));
}

fn squeeze(draw: &mut Draw) {
    let mut dims = any(draw, 2);
    let axis = 1 + draw.below(dims.len() - 1);
    dims[axis] = 1;
    draw.data(&dims);
    if draw.opset < 13 {
        draw.with(ints("axes", &[axis as i64]));
    } else {
        draw.list(&[axis as i64]);
    }
}

fn blocks(draw: &mut Draw) {
    let block = draw.of(&[1, 2, 3]);
    let mut dims = draw.sizes(4);
    if draw.operator == "DepthToSpace" {
        dims[1] *= block * block;
        if draw.opset >= 11 {
            let mode = draw.of(&["DCR", "CRD"]);
            draw.with(text("mode", mode));
        }
    } else {
        dims[2] *= block;
        dims[3] *= block;
    }
    draw.data(&dims);
    draw.with(int("blocksize", block as i64));
}

fn tile(draw: &mut Draw) {
    let dims = any(draw, 2);
    let mut times = draw.ints(dims.len(), 1, 3);
    times[0] = 1;
    draw.data(&dims);
    draw.list(&times);
}

fn expand(draw: &mut Draw) {
    let mut dims = any(draw, 2);
    let mut to: Vec<i64> = dims.iter().map(|&size| size as i64).collect();
    to[0] = 1;
    let axis = 1 + draw.below(dims.len() - 1);
    dims[axis] = 1;
    to[axis] = draw.size() as i64;
    draw.data(&dims);
    draw.list(&to);
}

fn resize(draw: &mut Draw) {
    let rank = draw.of(&[3, 4, 4, 4, 5]);
    let dims = draw.sizes(rank);
    draw.data(&dims);
    let mode = draw.of(&["nearest", "linear", "cubic"]);
    draw.with(text(
        "mode",
        if draw.opset < 11 && mode == "cubic" {
            "linear"
        } else {
            mode
        },
    ));
    let factors: Vec<f32> = (0..rank)
        .map(|axis| {
            if axis < 2 {
                1.0
            } else {
                draw.of(&[1.0, 2.0, 0.5, 1.7, 0.3])
            }
        })
        .collect();
    if draw.operator == "Upsample" {
        draw.opset = draw.of(&[7, 8, 9]);
    }
    if draw.opset < 9 {
        let mut scales = float("scales", 0.0);
        scales.r#type = crate::onnx::AttributeType::Floats.into();
        scales.f = 0.0;
        scales.floats = factors.iter().map(|factor| factor.max(1.0)).collect();
        draw.with(scales);
        return;
    }
    if draw.opset >= 11 {
        let place = draw.of(&[
            "half_pixel",
            "pytorch_half_pixel",
            "align_corners",
            "asymmetric",
            "tf_crop_and_resize",
        ]);
        draw.with(text("coordinate_transformation_mode", place));
        let nearest = draw.of(&["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]);
        draw.with(text("nearest_mode", nearest));
        let beyond: Vec<f32> = (0..2 * rank)
            .map(|index| if index < rank { 0.0 } else { 1.5 })
            .collect();
        draw.floats(&if place == "tf_crop_and_resize" {
            beyond
        } else {
            vec![]
        });
        if draw.opset >= 18 && mode != "nearest" {
            let smooth = draw.below(2) as i64;
            draw.with(int("antialias", smooth));
        }
    }
    draw.floats(&factors);
}

fn one_hot(draw: &mut Draw) {
    let dims = any(draw, 1);
    // Most are beyond the depth.
    draw.data_as(&dims, 7);
    let depth = draw.size() as i64;
    draw.list(&[depth]);
    draw.weight(&[2]);
    let axis = draw.axis(dims.len() + 1);
    draw.with(int("axis", axis));
}

fn constant_of_shape(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data_as(&dims, 1);
    draw.shape_of_input();
    let value = draw.of(&[0.0, 3.0]);
    draw.with(crate::build::tensor(
        "value",
        &frostline_tensor::Tensor::f32([1], vec![value]).unwrap(),
    ));
}
