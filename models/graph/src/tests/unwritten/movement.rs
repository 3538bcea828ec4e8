//! Random cases for operators that move elements.

use super::draw::Draw;
use super::recipes::any;
use crate::build::{float, int, ints, text};

pub(super) fn join(draw: &mut Draw) {
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

pub(super) fn split(draw: &mut Draw) {
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

pub(super) fn slice(draw: &mut Draw) {
    let dims = any(draw, 2);
    let count = 1 + draw.below(dims.len() - 1);
    let axes: Vec<i64> = (1..=count as i64).collect();
    draw.data(&dims);
    // The range starts before the first element and ends after the last. Steps are positive or negative.
    let starts = draw.ints(count, -20, 20);
    let ends = draw.ints(count, -20, 20);
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

pub(super) fn pad(draw: &mut Draw) {
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

pub(super) fn gather(draw: &mut Draw) {
    let dims = any(draw, 2);
    let axis = 1 + draw.below(dims.len() - 1);
    let size = dims[axis] as i64;
    let indices = any(draw, 0);
    draw.data(&dims);
    draw.indices(&indices, if draw.opset < 11 { 0 } else { -size }, size - 1);
    draw.with(int("axis", axis as i64));
}

pub(super) fn gather_elements(draw: &mut Draw) {
    let dims = any(draw, 2);
    let axis = 1 + draw.below(dims.len() - 1);
    let size = dims[axis] as i64;
    let mut indices: Vec<usize> = dims.iter().map(|&size| 1 + draw.below(size)).collect();
    indices[axis] = draw.size();
    draw.data(&dims);
    draw.indices(&indices, -size, size - 1);
    draw.with(int("axis", axis as i64));
}

pub(super) fn gather_nd(draw: &mut Draw) {
    let dims = any(draw, 2);
    let depth = 1 + draw.below(dims.len());
    let mut indices = any(draw, 0);
    indices.push(depth);
    draw.data(&dims);
    // Any element has a first one.
    draw.indices(&indices, 0, 0);
}

pub(super) fn scatter_nd(draw: &mut Draw) {
    let dims = any(draw, 2);
    let count = draw.size();
    draw.data(&dims);
    draw.indices(&[count, 1], 0, 0);
    draw.weight(&[&[count], &dims[1..]].concat());
}

pub(super) fn triangle(draw: &mut Draw) {
    let dims = any(draw, 2);
    draw.data(&dims);
    if draw.flip() {
        let diagonal = draw.ints(1, -20, 20);
        draw.indices(&[], diagonal[0], diagonal[0]);
    }
    let upper = draw.below(2) as i64;
    draw.with(int("upper", upper));
}

pub(super) fn transpose(draw: &mut Draw) {
    let dims = any(draw, 1);
    let mut order: Vec<i64> = (0..dims.len() as i64).collect();
    for place in (1..order.len()).rev() {
        let other = draw.below(place + 1);
        order.swap(place, other);
    }
    draw.data(&dims);
    draw.with(ints("perm", &order));
}

pub(super) fn reshape(draw: &mut Draw) {
    let dims = any(draw, 2);
    draw.data(&dims);
    let to = draw.of(&[&[0, -1][..], &[-1], &[0, 1, -1], &[-1, 1, 1]]);
    draw.list(to);
}

pub(super) fn flatten(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data(&dims);
    let axis = draw.below(dims.len() + 1) as i64;
    draw.with(int("axis", axis));
}

pub(super) fn squeeze(draw: &mut Draw) {
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

pub(super) fn blocks(draw: &mut Draw) {
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

pub(super) fn tile(draw: &mut Draw) {
    let dims = any(draw, 2);
    let mut times = draw.ints(dims.len(), 1, 3);
    times[0] = 1;
    draw.data(&dims);
    draw.list(&times);
}

pub(super) fn expand(draw: &mut Draw) {
    let mut dims = any(draw, 2);
    let mut to: Vec<i64> = dims.iter().map(|&size| size as i64).collect();
    to[0] = 1;
    let axis = 1 + draw.below(dims.len() - 1);
    dims[axis] = 1;
    to[axis] = draw.size() as i64;
    draw.data(&dims);
    draw.list(&to);
}

pub(super) fn resize(draw: &mut Draw) {
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

pub(super) fn one_hot(draw: &mut Draw) {
    let dims = any(draw, 1);
    // Most indices exceed the depth.
    draw.data_as(&dims, 7);
    let depth = draw.size() as i64;
    draw.list(&[depth]);
    draw.weight(&[2]);
    let axis = draw.axis(dims.len() + 1);
    draw.with(int("axis", axis));
}

pub(super) fn constant_of_shape(draw: &mut Draw) {
    let dims = any(draw, 1);
    draw.data_as(&dims, 1);
    draw.shape_of_input();
    let value = draw.of(&[0.0, 3.0]);
    draw.with(crate::build::tensor(
        "value",
        &frostline_tensor::Tensor::f32([1], vec![value]).unwrap(),
    ));
}
