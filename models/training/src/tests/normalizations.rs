//! Gradients of normalizations over a sample or a batch, compared with central differences.

use super::harness::{Batch, Net, PLAIN, Trained, check, check_rows, check_with, tensor, values, weights};
use crate::{BatchNorm, StepSettings, TrainingGraph};
use frostline_graph::build::{float, int, node};
use frostline_tensor::DType;

const IMAGE: [usize; 3] = [4, 3, 5];

#[test]
fn instance_normalization() {
    let node = node("InstanceNormalization", &["h", "s", "b"], &["y"]).with([float("epsilon", 1e-3)]);
    let net = Net::new(&IMAGE)
        .probed(&IMAGE)
        .weight("s", &[4])
        .weight("b", &[4]);
    check(net.node(node).classified("y", 60));
}

#[test]
fn group_normalization() {
    for (opset, affine) in [(18, 2), (21, 4)] {
        let node = node("GroupNormalization", &["h", "s", "b"], &["y"]).with([int("num_groups", 2)]);
        let net = Net::new(&IMAGE).opset(opset).probed(&IMAGE);
        let net = net.weight("s", &[affine]).weight("b", &[affine]);
        check(net.node(node).classified("y", 60));
    }
}

#[test]
fn group_normalization_as_exporters_write_it() {
    let one = tensor(&[2], DType::F64, vec![1.0; 2]);
    let zero = tensor(&[2], DType::F64, vec![0.0; 2]);
    let net = Net::new(&IMAGE)
        .probed(&IMAGE)
        .ints("apart", &[0, 2, -1])
        .ints("back", &[-1, 4, 3, 5])
        .stored("one", &one)
        .stored("zero", &zero)
        .weight("s", &[4, 1, 1])
        .weight("b", &[4, 1, 1])
        .op("Reshape", &["h", "apart"], "g")
        .op("InstanceNormalization", &["g", "one", "zero"], "n")
        .op("Reshape", &["n", "back"], "i")
        .op("Mul", &["i", "s"], "m")
        .op("Add", &["m", "b"], "y")
        .classified("y", 60);
    let model = net.model();
    let graph = TrainingGraph::build(&model, 3, PLAIN).unwrap();
    assert_eq!(weights(&graph.state), ["probe", "s", "b", "head"]);
    super::harness::check_elements(&model, 3, 40);
}

#[test]
fn local_response_normalization() {
    let net = |size| {
        let node = node("LRN", &["h"], &["y"]).with([
            int("size", size),
            float("alpha", 0.5),
            float("beta", 0.75),
            float("bias", 1.2),
        ]);
        Net::new(&IMAGE).probed(&IMAGE).node(node).classified("y", 60)
    };
    check(net(3));
    check(net(5));
    // The engine does not support even sizes.
    super::harness::check_elements(&net(2).model(), 3, 40);
}

/// Adds a batch normalization of `input` with 4 channels.
fn batch_norm(net: Net, input: &str) -> Net {
    let variance = tensor(&[4], DType::F64, vec![0.5, 1.0, 1.5, 2.0]);
    let node = node(
        "BatchNormalization",
        &[input, "s", "b", "mean", "variance"],
        &["y"],
    )
    .with([float("epsilon", 1e-3), float("momentum", 0.8)]);
    net.weight("s", &[4])
        .weight("b", &[4])
        .weight("mean", &[4])
        .stored("variance", &variance)
        .node(node)
}

fn image() -> Net {
    batch_norm(Net::new(&IMAGE).probed(&IMAGE), "h").classified("y", 60)
}

fn by(batch_norm: BatchNorm) -> StepSettings {
    StepSettings {
        batch_norm,
        ..StepSettings::from(PLAIN)
    }
}

#[test]
fn by_the_batchs_statistics() {
    check_with(image(), &by(BatchNorm::Updated));
    let conv = Net::new(&IMAGE)
        .weight("w", &[4, 4, 2, 2])
        .op("Conv", &["x", "w"], "c");
    check_with(batch_norm(conv, "c").classified("y", 32), &by(BatchNorm::Updated));
}

#[test]
fn statistics_move_towards_the_batchs() {
    let net = batch_norm(Net::new(&[4]), "x")
        .op("Identity", &["y"], "logits")
        .model();
    let settings = by(BatchNorm::Updated);
    let mut trained = Trained::new(&net, 3, &settings);
    let batch = Batch::random(&net, 3, 1);
    let state = trained.initial();
    let next = trained.step(&state, &batch, 0.1).state;
    let rows = values(&batch.activations);
    let index = |name: &str| {
        trained
            .graph
            .state
            .iter()
            .position(|slot| slot.parameter.as_deref() == Some(name))
    };
    let mean = index("mean").unwrap();
    let variance = index("variance").unwrap();
    for channel in 0..4 {
        let column: Vec<f64> = (0..3).map(|row| rows[row * 4 + channel]).collect();
        let level = column.iter().sum::<f64>() / 3.0;
        let spread = column.iter().map(|x| (x - level).powi(2)).sum::<f64>() / 2.0;
        for (slot, batch) in [(mean, level), (variance, spread)] {
            let momentum = f64::from(0.8_f32);
            let expected = momentum * values(&state[slot])[channel] + (1.0 - momentum) * batch;
            assert!((values(&next[slot])[channel] - expected).abs() < 1e-12);
        }
    }
}

#[test]
fn statistics_move_with_batches_that_make_no_update_alone() {
    let net = batch_norm(Net::new(&[4]), "x")
        .op("Identity", &["y"], "logits")
        .model();
    let settings = StepSettings {
        accumulates: true,
        ..by(BatchNorm::Updated)
    };
    let batch = Batch::random(&net, 3, 1);
    let mut gathering = Trained::new(&net, 3, &settings);
    let state = gathering.initial();
    let next = gathering.step(&state, &batch, 0.1).state;
    for (slot, (before, after)) in gathering.graph.state.iter().zip(state.iter().zip(&next)) {
        let moves = ["/statistic", "/gathered", "count"];
        let moves = moves.iter().any(|end| slot.input.ends_with(end));
        assert_eq!(moves, before != after, "{}", slot.input);
    }
}

#[test]
fn a_single_row_is_normalized_by_the_stored_statistics_and_leaves_them() {
    let net = batch_norm(Net::new(&[4]), "x")
        .op("Identity", &["y"], "logits")
        .model();
    let stored = by(BatchNorm::Stored);
    let updated = by(BatchNorm::Updated);
    let batch = Batch::random(&net, 1, 1);
    let mut one = Trained::new(&net, 1, &stored);
    let mut other = Trained::new(&net, 1, &updated);
    let state = other.initial();
    let expected = one.step(&one.initial(), &batch, 0.1);
    let actual = other.step(&state, &batch, 0.1);
    assert_eq!(expected.loss, actual.loss);
    for (slot, (before, after)) in other.graph.state.iter().zip(state.iter().zip(&actual.state)) {
        assert_eq!(
            slot.input.ends_with("/statistic"),
            before == after,
            "{}",
            slot.input
        );
    }
}

#[test]
fn a_single_row_is_normalized_by_the_updated_statistics() {
    let net = || batch_norm(Net::new(&[4]).probed(&[4]), "h").classified("y", 4);
    let model = net().model();
    let settings = by(BatchNorm::Updated);
    let mut trained = Trained::new(&model, 3, &settings);
    let state = trained.initial();
    let state = trained.step(&state, &Batch::random(&model, 3, 1), 0.1).state;
    let became = trained.graph.state.iter().zip(&state);
    let became = became.filter_map(|(slot, tensor)| {
        let weight = slot.to_weight(tensor).unwrap();
        Some((slot.parameter.clone()?, weight))
    });
    let became = model.merge(&became.collect::<Vec<_>>()).unwrap();
    let row = Batch::random(&model, 1, 2);
    let mut one = Trained::new(&model, 1, &settings);
    let mut stored = Trained::new(&became, 1, by(BatchNorm::Stored));
    let expected = stored.step(&stored.initial(), &row, 0.0).loss;
    let actual = one.step(&state, &row, 0.0).loss;
    assert!((actual - expected).abs() < 1e-9, "{actual} instead of {expected}");
    check_rows(net(), &settings, 1);
}

#[test]
fn frozen_leaves_the_affine_part_out() {
    let model = image().model();
    let names = |mode| {
        let graph = TrainingGraph::build(&model, 3, by(mode)).unwrap();
        weights(&graph.state).join(" ")
    };
    assert_eq!(names(BatchNorm::Stored), "probe s b head");
    assert_eq!(names(BatchNorm::Frozen), "probe head");
    assert_eq!(names(BatchNorm::Updated), "probe s b head mean variance");
    check_with(image(), &by(BatchNorm::Frozen));
}

#[test]
fn statistics_stored_once_for_several_are_read_and_never_moved() {
    let net = Net::new(&IMAGE)
        .probed(&IMAGE)
        .op("Identity", &["stored"], "mean");
    let variance = tensor(&[4], DType::F64, vec![0.5, 1.0, 1.5, 2.0]);
    let norm = node("BatchNormalization", &["h", "s", "b", "mean", "variance"], &["y"]);
    let net = net.weight("s", &[4]).weight("b", &[4]).weight("stored", &[4]);
    let model = net
        .stored("variance", &variance)
        .node(norm)
        .classified("y", 60)
        .model();
    super::harness::check_elements(&model, 3, 40);
    let error = TrainingGraph::build(&model, 3, by(BatchNorm::Updated)).unwrap_err();
    assert!(error.to_string().contains("once for several"), "{error}");
}

#[test]
fn nothing_to_update_is_refused() {
    let net = Net::new(&[4])
        .weight("w", &[4, 3])
        .op("MatMul", &["x", "w"], "logits");
    let error = TrainingGraph::build(&net.model(), 3, by(BatchNorm::Updated)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no BatchNormalization with statistics"),
        "{error}"
    );
}
