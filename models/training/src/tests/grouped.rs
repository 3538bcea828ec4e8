//! Grouped convolutions, compared with central differences in `f32` and with an equal convolution in a single
//! group.

use super::harness::{Batch, Net, PLAIN, Trained, check_in_f32, random, tensor, values};
use crate::TrainingGraph;
use frostline_graph::build::{int, ints, node, text};
use frostline_graph::onnx::AttributeProto;
use frostline_tensor::{DType, Tensor};

const IMAGE: [usize; 3] = [4, 7, 6];

struct Shape {
    image: [usize; 3],
    groups: usize,
    filters: usize,
    kernel: [usize; 2],
    /// Number of output positions.
    positions: usize,
}

fn net(shape: &Shape, attributes: &[AttributeProto], groups: usize, weight: &Tensor) -> Net {
    let conv = node("Conv", &["h", "w", "b"], &["y"])
        .with(attributes.to_vec())
        .with([int("group", groups as i64)]);
    Net::of(&shape.image, DType::F32)
        .weight("probe", &shape.image)
        .op("Mul", &["x", "probe"], "h")
        .stored("w", weight)
        .weight("b", &[shape.filters])
        .node(conv)
        .classified("y", shape.filters * shape.positions)
}

/// Converts a grouped weight to an equal weight with a single group, filled with zeros.
fn dense(weight: &Tensor, groups: usize) -> Tensor {
    let &[filters, depth, height, width] = weight.shape().dims() else {
        panic!("no kernel")
    };
    let taps = height * width;
    let mut wide = vec![0.0; filters * depth * groups * taps];
    for (filter, kernel) in values(weight).chunks(depth * taps).enumerate() {
        let group = filter / (filters / groups);
        let start = (filter * groups + group) * depth * taps;
        wide[start..start + depth * taps].copy_from_slice(kernel);
    }
    tensor(&[filters, depth * groups, height, width], DType::F32, wide)
}

fn check(shape: &Shape, attributes: &[AttributeProto]) {
    let dims = [
        shape.filters,
        shape.image[0] / shape.groups,
        shape.kernel[0],
        shape.kernel[1],
    ];
    let weight = random(&dims, DType::F32, 5);
    check_in_f32(net(shape, attributes, shape.groups, &weight));
    let grouped = net(shape, attributes, shape.groups, &weight).model();
    let alone = net(shape, attributes, 1, &dense(&weight, shape.groups)).model();
    let batch = Batch::random(&grouped, 5, 3);
    let gradients = |model| {
        let mut trained = Trained::new(model, 5, PLAIN);
        let state = trained.initial();
        let next = trained.step(&state, &batch, 1.0).state;
        let slots = trained.graph.state.iter().zip(state.iter().zip(&next));
        slots
            .map(|(slot, (before, after))| {
                let before = slot.to_weight(before).unwrap();
                let after = slot.to_weight(after).unwrap();
                let difference = values(&before)
                    .iter()
                    .zip(values(&after))
                    .map(|(b, a)| b - a)
                    .collect();
                tensor(before.shape().dims(), DType::F32, difference)
            })
            .collect::<Vec<_>>()
    };
    let names = TrainingGraph::build(&grouped, 5, PLAIN).unwrap().state;
    let of_groups = gradients(&grouped);
    let of_one = gradients(&alone);
    assert_eq!([of_groups.len(), of_one.len()], [names.len(); 2]);
    for ((slot, own), other) in names.iter().zip(of_groups).zip(of_one) {
        let own = match slot.parameter.as_deref() {
            Some("w") => dense(&own, shape.groups),
            _ => own,
        };
        assert_eq!(own.shape(), other.shape(), "{}", slot.input);
        let pairs = values(&own).into_iter().zip(values(&other));
        for (own, other) in pairs.filter(|(own, _)| *own != 0.0) {
            let error = (own - other).abs();
            assert!(
                error < 1e-5 + 1e-5 * other.abs(),
                "{}: {own}, {other}",
                slot.input
            );
        }
    }
}

const fn shape(groups: usize, filters: usize, kernel: [usize; 2], positions: usize) -> Shape {
    Shape {
        image: IMAGE,
        groups,
        filters,
        kernel,
        positions,
    }
}

#[test]
fn depthwise() {
    let padded = [ints("pads", &[1, 1, 1, 1])];
    check(&shape(4, 4, [3, 3], 42), &padded);
    check(&shape(4, 4, [1, 1], 42), &[]);
    check(
        &shape(4, 4, [5, 5], 12),
        &[ints("pads", &[2, 2, 2, 2]), ints("strides", &[2, 2])],
    );
}

#[test]
fn depthwise_over_maps_of_several_blocks() {
    let over = |image, kernel, positions, attributes: &[AttributeProto]| {
        let shape = Shape {
            image,
            ..shape(image[0], image[0], kernel, positions)
        };
        check(&shape, attributes);
    };
    over([3, 10, 19], [3, 3], 190, &[ints("pads", &[1, 1, 1, 1])]);
    let strides = ints("strides", &[2, 1]);
    over([2, 19, 7], [5, 3], 70, &[ints("pads", &[2, 1, 2, 1]), strides]);
    let dilations = ints("dilations", &[2, 1]);
    over([2, 13, 9], [3, 2], 72, &[dilations]);
}

#[test]
fn depthwise_with_a_kernel_too_large_for_blocks() {
    let shape = Shape {
        image: [2, 16, 16],
        ..shape(2, 2, [17, 17], 256)
    };
    check(&shape, &[ints("pads", &[8; 4])]);
}

#[test]
fn depthwise_with_several_filters_a_channel() {
    check(&shape(4, 8, [3, 3], 42), &[ints("pads", &[1, 1, 1, 1])]);
}

#[test]
fn two_groups() {
    check(&shape(2, 6, [3, 3], 42), &[ints("pads", &[1, 1, 1, 1])]);
    check(&shape(2, 6, [1, 1], 12), &[ints("strides", &[2, 2])]);
    check(&shape(2, 2, [3, 2], 9), &[ints("strides", &[2, 2])]);
}

#[test]
fn uneven_padding_dilations_and_padding_by_name() {
    check(&shape(2, 4, [3, 3], 42), &[ints("pads", &[0, 2, 2, 0])]);
    check(
        &shape(4, 4, [3, 3], 42),
        &[ints("pads", &[2, 1, 2, 1]), ints("dilations", &[2, 1])],
    );
    check(
        &shape(4, 4, [3, 3], 9),
        &[
            ints("pads", &[2, 2, 2, 2]),
            ints("dilations", &[3, 2]),
            ints("strides", &[2, 2]),
        ],
    );
    for mode in ["SAME_UPPER", "SAME_LOWER"] {
        check(
            &shape(2, 4, [3, 3], 12),
            &[ints("strides", &[2, 2]), text("auto_pad", mode)],
        );
    }
}

#[test]
fn along_one_axis() {
    let conv = node("Conv", &["h", "w"], &["y"]).with([int("group", 3), ints("pads", &[1, 1])]);
    let net = Net::of(&[3, 9], DType::F32)
        .probed(&[3, 9])
        .weight("w", &[3, 1, 3]);
    check_in_f32(net.node(conv).classified("y", 27));
}
