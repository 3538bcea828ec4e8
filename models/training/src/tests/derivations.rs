//! Weights that the network computes from others, compared with central differences.

use super::harness::{Net, PLAIN, check, tensor, weights};
use crate::{Trainability, TrainingGraph};
use frostline_graph::Model;
use frostline_graph::build::{int, ints, node};
use frostline_tensor::DType;

const IMAGE: [usize; 3] = [2, 4, 4];

fn trained(model: &Model) -> Vec<String> {
    let graph = TrainingGraph::build(model, 3, PLAIN).unwrap();
    weights(&graph.state).into_iter().map(str::to_owned).collect()
}

/// Weight norm as PyTorch exports it: direction `v`, gain `g`.
fn weight_norm() -> Net {
    Net::new(&IMAGE)
        .probed(&IMAGE)
        .weight("v", &[3, 2, 3, 3])
        .weight("g", &[3, 1, 1, 1])
        .ints("axes", &[1, 2, 3])
        .op("ReduceL2", &["v", "axes"], "norm")
        .op("Div", &["v", "norm"], "direction")
        .op("Mul", &["direction", "g"], "w")
        .node(node("Conv", &["h", "w"], &["y"]).with([ints("pads", &[1; 4])]))
        .classified("y", 48)
}

#[test]
fn weight_norm_trains_direction_and_gain() {
    assert_eq!(trained(&weight_norm().model()), ["probe", "v", "g", "head"]);
    check(weight_norm());
}

/// Swin v2 has no bias for keys: PyTorch's exporter overwrites a third of the bias by zeros.
#[test]
fn a_partly_overwritten_bias_is_trained() {
    let net = || {
        Net::new(&[4])
            .probed(&[4])
            .weight("w", &[4, 6])
            .weight("bias", &[6])
            .stored("zeros", &tensor(&[2], DType::F64, vec![0.0; 2]))
            .ints("list", &[2, 3])
            .ints("column", &[2, 1])
            .op("Reshape", &["list", "column"], "places")
            .op("ScatterND", &["bias", "places", "zeros"], "b")
            .op("MatMul", &["h", "w"], "product")
            .op("Add", &["b", "product"], "y")
            .classified("y", 6)
    };
    assert_eq!(trained(&net().model()), ["probe", "w", "bias", "head"]);
    assert!(
        net().model().fixed_weights().is_empty(),
        "the zeros are no weight"
    );
    check(net());
}

#[test]
fn a_standardized_convolution_trains_its_weight() {
    // The exporter stores the weight again, rearranged, for the statistics that nothing reads.
    let net = |gain: &[f64]| {
        let norm = node(
            "BatchNormalization",
            &["w", "gain", "zeros", "mean", "mean"],
            &["s", "m", "v"],
        );
        Net::new(&IMAGE)
            .probed(&IMAGE)
            .weight("w", &[1, 3, 18])
            .weight("copy", &[3, 18])
            .stored("gain", &tensor(&[3], DType::F64, gain.to_vec()))
            .stored("zeros", &tensor(&[3], DType::F64, vec![0.0; 3]))
            .ints("axes", &[1])
            .node(node("ReduceMean", &["copy", "axes"], &["mean"]).with([int("keepdims", 0)]))
            .node(norm.with([int("training_mode", 1)]))
            .ints("dims", &[3, 2, 3, 3])
            .op("Reshape", &["s", "dims"], "kernel")
            .node(node("Conv", &["h", "kernel"], &["y"]).with([ints("pads", &[1; 4])]))
            .classified("y", 48)
    };
    assert_eq!(trained(&net(&[1.0; 3]).model()), ["probe", "w", "head"]);
    assert_eq!(
        trained(&net(&[0.5, 0.7, 0.9]).model()),
        ["probe", "w", "gain", "head"]
    );
    // The engine standardizes with the statistics of the batch only in training builds, so logits are not
    // compared.
    super::harness::check_elements(&net(&[0.5, 0.7, 0.9]).model(), 3, 40);
}

#[test]
fn a_merged_adapter_trains_both_factors() {
    let net = || {
        Net::new(&[4])
            .probed(&[4])
            .weight("w", &[4, 5])
            .weight("b", &[4, 2])
            .weight("a", &[2, 5])
            .stored("scale", &tensor(&[], DType::F64, vec![0.5]))
            .op("MatMul", &["b", "a"], "product")
            .op("Mul", &["product", "scale"], "scaled")
            .op("Add", &["w", "scaled"], "sum")
            .op("MatMul", &["h", "sum"], "y")
            .classified("y", 5)
    };
    assert_eq!(trained(&net().model()), ["probe", "w", "b", "a", "head"]);
    check(net());
}

#[test]
fn an_operator_without_a_rule_in_a_derivation_is_an_obstacle_for_cuts_before_the_weight_is_read() {
    let model = Net::of(&[4], DType::F32)
        .weight("raw", &[4, 4])
        .op("Tan", &["raw"], "w")
        .weight("first", &[4, 4])
        .op("MatMul", &["x", "first"], "before")
        .op("Relu", &["before"], "relu")
        .op("MatMul", &["relu", "w"], "product")
        .op("Relu", &["product"], "after")
        .classified("after", 4)
        .model();
    let trainability = Trainability::analyze(&model).unwrap();
    for cut in ["x", "before", "relu"] {
        let why = trainability
            .obstacle(cut)
            .map(ToString::to_string)
            .unwrap_or_default();
        assert!(why.contains("operator Tan (node 'w')"), "{cut}: {why}");
    }
    assert!(trainability.obstacle("after").is_none());
}
