//! Winograd's algorithm, compared with central differences and with the other convolution algorithm.

use super::harness::{Batch, Net, PLAIN, Trained, check_with, values};
use crate::winograd::faster_by_winograd;
use crate::{Optimizer, StepSettings};
use frostline_graph::Model;
use frostline_graph::build::{ints, node};
use frostline_tensor::DType;

const MOMENTUM: Optimizer = Optimizer::Sgd {
    momentum: 0.9,
    nesterov: false,
    weight_decay: 0.01,
};

fn by_winograd(optimizer: Optimizer, weights: &[&str]) -> StepSettings {
    StepSettings {
        winograd: weights.iter().map(|name| (*name).to_owned()).collect(),
        ..optimizer.into()
    }
}

/// Returns two 3 x 3 convolutions with the weights `w` and `v`, the second one without a bias.
fn net(dtype: DType, [height, width]: [usize; 2], pads: [i64; 4]) -> Net {
    let row = [2, height, width];
    Net::of(&row, dtype)
        .probed(&row)
        .weight("w", &[4, 2, 3, 3])
        .weight("b", &[4])
        .weight("v", &[3, 4, 3, 3])
        .node(node("Conv", &["h", "w", "b"], &["c"]).with([ints("pads", &pads)]))
        .op("Tanh", &["c"], "t")
        .node(node("Conv", &["t", "v"], &["d"]).with([ints("pads", &[1, 1, 1, 1])]))
        .op("GlobalAveragePool", &["d"], "p")
        .classified("p", 3)
}

fn both(dtype: DType, size: [usize; 2]) -> Model {
    net(dtype, size, [1, 1, 1, 1]).model()
}

#[test]
fn gradients_are_those_of_differences() {
    for (size, pads) in [
        ([6, 4], [1, 1, 1, 1]),
        ([5, 7], [1, 1, 1, 1]),
        ([4, 5], [0, 2, 1, 0]),
        ([3, 6], [0, 0, 0, 0]),
    ] {
        check_with(net(DType::F64, size, pads), &by_winograd(PLAIN, &["w", "v"]));
    }
}

#[test]
fn both_convolution_algorithms_train_alike() {
    let model = both(DType::F32, [7, 7]);
    let batch = Batch::random(&model, 5, 3);
    let weights_after = |winograd: &[&str]| {
        let mut trained = Trained::new(&model, 5, by_winograd(MOMENTUM, winograd));
        let mut state = trained.initial();
        for _ in 0..10 {
            state = trained.step(&state, &batch, 0.1).state;
        }
        let slots = trained.graph.state.iter().zip(&state);
        let weights = slots.filter(|(slot, _)| slot.parameter.is_some());
        let weights = weights.map(|(slot, tensor)| values(&slot.to_weight(tensor).unwrap()));
        weights.flatten().collect::<Vec<f64>>()
    };
    let expected = weights_after(&[]);
    for winograd in [&["w"][..], &["v"], &["w", "v"]] {
        for (actual, expected) in weights_after(winograd).iter().zip(&expected) {
            assert!((actual - expected).abs() < 1e-5, "{actual} instead of {expected}");
        }
    }
}

#[test]
fn a_kernel_that_is_used_twice_gets_both_gradients() {
    let row = [3, 5, 6];
    let twice = Net::new(&row)
        .probed(&row)
        .weight("w", &[3, 3, 3, 3])
        .node(node("Conv", &["h", "w"], &["c"]).with([ints("pads", &[1, 1, 1, 1])]))
        .op("Tanh", &["c"], "t")
        .node(node("Conv", &["t", "w"], &["d"]).with([ints("strides", &[2, 2])]))
        .node(node("Conv", &["t", "w"], &["e"]).with([ints("pads", &[0, 0, 0, 0])]))
        .op("GlobalAveragePool", &["d"], "p")
        .op("GlobalAveragePool", &["e"], "q")
        .op("Add", &["p", "q"], "s")
        .classified("s", 3);
    check_with(twice, &by_winograd(PLAIN, &["w"]));
}

#[test]
fn unsuitable_weights_are_not_affected() {
    let model = both(DType::F32, [6, 6]);
    let plain = Trained::new(&model, 2, PLAIN).graph;
    let named = Trained::new(&model, 2, by_winograd(PLAIN, &["b", "head", "nothing"])).graph;
    assert_eq!(plain.model, named.model);
}

#[test]
fn the_rule_chooses_by_channels_and_tiles() {
    let conv = |weight: &str, input: &str, output: &str, strides: [i64; 2]| {
        node("Conv", &[input, weight], &[output])
            .with([ints("pads", &[1, 1, 1, 1]), ints("strides", &strides)])
    };
    let model = Net::of(&[64, 8, 8], DType::F32)
        .weight("w", &[64, 64, 3, 3])
        .weight("strided", &[64, 64, 3, 3])
        .weight("late", &[64, 64, 3, 3])
        .weight("few", &[8, 64, 3, 3])
        .node(conv("w", "x", "c", [1, 1]))
        .node(conv("strided", "c", "d", [2, 2]))
        .node(conv("late", "d", "e", [1, 1]))
        .node(conv("few", "e", "f", [1, 1]))
        .op("GlobalAveragePool", &["f"], "p")
        .classified("p", 8)
        .model();
    let chosen = |batch| {
        let chosen = faster_by_winograd(&model, batch).unwrap();
        chosen.into_iter().collect::<Vec<_>>().join(" ")
    };
    // The layers have 16 tiles per sample, and 4 after the stride.
    assert_eq!([7, 8, 31, 32].map(chosen), ["", "w", "w", "late w"]);
}
