//! Attention as exporters write it. Networks have a sequence of 5 tokens with 12 values, and 3 heads.

use super::support::{Builder, assert_same, count};
use crate::fuse_attention;
use frostline_graph::build::{batched, int};
use frostline_graph::onnx::{GraphProto, NodeProto, data_type};
use frostline_graph::{GraphError, Model, ModelLimits};

const ROWS: usize = 5;
const HEADS: usize = 3;
const WIDTH: usize = 4;
const HIDDEN: usize = HEADS * WIDTH;
const X: [usize; 2] = [ROWS, HIDDEN];

/// Fuses the network and checks that the outputs and the number of fused attentions are as expected.
fn fused(network: &Model, attentions: usize) -> Model {
    let (fused, count) = fuse_attention(network).unwrap();
    assert_eq!(count, attentions);
    assert_eq!(
        self::count(&fused, "Softmax"),
        self::count(network, "Softmax") - attentions
    );
    assert_same(network, &fused, &network_dims(network));
    fused
}

fn network_dims(network: &Model) -> Vec<usize> {
    network.shapes(1).unwrap().dims("x").unwrap()[1..].to_vec()
}

fn unfused(network: &Model) {
    let (fused, count) = fuse_attention(network).unwrap();
    assert_eq!(count, 0);
    assert_eq!(&fused, network);
}

/// Returns the operators other than those of the projections.
fn operators(model: &Model) -> Vec<&str> {
    let names = model.nodes().iter().map(|node| node.op_type.as_str());
    names.filter(|name| !matches!(*name, "MatMul" | "Add")).collect()
}

/// Adds query, key and value with an axis of heads, from separate projections.
fn separate(builder: &mut Builder) -> [String; 3] {
    [0; 3].map(|_| {
        let projected = builder.linear("x", HIDDEN, HIDDEN);
        let split = builder.reshape(&projected, &[0, 0, 3, 4]);
        builder.transpose(&split, &[0, 2, 1, 3])
    })
}

/// Adds the softmax of scores and its product with the values.
fn weighted(builder: &mut Builder, scores: &str, value: &str) -> String {
    let softmax = builder.add_with("Softmax", &[scores], [int("axis", -1)]);
    builder.add("MatMul", &[&softmax, value])
}

/// Adds the scaled product of query and key.
fn scores(builder: &mut Builder, query: &str, key: &str) -> String {
    let key = builder.transpose(key, &[0, 1, 3, 2]);
    let product = builder.add("MatMul", &[query, &key]);
    builder.scaled(&product, 0.5)
}

/// Adds the end of an attention with an axis of heads.
fn joined(builder: &mut Builder, product: &str) -> String {
    let ordered = builder.transpose(product, &[0, 2, 1, 3]);
    builder.reshape(&ordered, &[0, 0, HIDDEN as i64])
}

fn network(builder: Builder, output: &str) -> Model {
    builder.network(&X, &[(output, &X)])
}

#[test]
fn separate_projections_are_read_directly() {
    let mut builder = Builder::default();
    let [query, key, value] = separate(&mut builder);
    let scores = scores(&mut builder, &query, &key);
    // transformers computes the softmax in f32 and casts the result back.
    let softmax = builder.add_with("Softmax", &[&scores], [int("axis", 3)]);
    let cast = builder.add_with("Cast", &[&softmax], [int("to", data_type::FLOAT.into())]);
    let product = builder.add("MatMul", &[&cast, &value]);
    let output = joined(&mut builder, &product);
    let fused = fused(&network(builder, &output), 1);
    assert_eq!(operators(&fused), ["MultiHeadAttention"]);
}

/// timm: a joint projection, one transposition, and a scale on both sides of the product.
#[test]
fn entries_of_a_joint_projection_are_sliced() {
    for select in ["Split", "Gather", "Slice"] {
        let mut builder = Builder::default();
        let joint = builder.linear("x", HIDDEN, 3 * HIDDEN);
        let split = builder.reshape(&joint, &[0, 5, 3, 3, 4]);
        let ordered = builder.transpose(&split, &[2, 0, 3, 1, 4]);
        let axis = builder.integers(&[0]);
        let parts = match select {
            "Split" => builder.split(&ordered, 0, &[1, 1, 1]),
            _ => (0..3).map(|_| ordered.clone()).collect(),
        };
        let mut entry = |place: usize| {
            let index = builder.integers(&[place as i64]);
            let end = builder.integers(&[place as i64 + 1]);
            let part = match select {
                "Split" => parts[place].clone(),
                "Gather" => builder.add_with("Gather", &[&ordered, &index], [int("axis", 0)]),
                _ => builder.add("Slice", &[&ordered, &index, &end, &axis]),
            };
            builder.add("Squeeze", &[&part, &axis])
        };
        let [query, key, value] = [0, 1, 2].map(&mut entry);
        let query = builder.scaled(&query, 0.7);
        // The new exporter of torch transposes keys without the axis of heads.
        let flat = builder.reshape(&key, &[-1, 5, 4]);
        let turned = builder.transpose(&flat, &[0, 2, 1]);
        let key = builder.reshape(&turned, &[-1, 3, 4, 5]);
        let key = builder.scaled(&key, 0.7);
        let scores = builder.add("MatMul", &[&query, &key]);
        let product = weighted(&mut builder, &scores, &value);
        let output = joined(&mut builder, &product);
        let fused = fused(&network(builder, &output), 1);
        assert_eq!(
            operators(&fused),
            ["Slice", "Slice", "Slice", "MultiHeadAttention"],
            "{select}"
        );
    }
}

/// torchvision: the sequence is the first axis, and heads are a part of the batch.
#[test]
fn an_attention_with_the_sequence_first_needs_no_transposition() {
    let mut builder = Builder::default();
    let sequence = builder.transpose("x", &[1, 0, 2]);
    let joint = builder.linear(&sequence, HIDDEN, 3 * HIDDEN);
    let split = builder.reshape(&joint, &[5, -1, 3, 12]);
    let zero = builder.integers(&[0]);
    let expanded = builder.add("Unsqueeze", &[&split, &zero]);
    let ordered = builder.transpose(&expanded, &[3, 1, 2, 0, 4]);
    let second_last = builder.integers(&[-2]);
    let squeezed = builder.add("Squeeze", &[&ordered, &second_last]);
    let [query, key, value] = [0, 1, 2].map(|place| {
        let index = builder.integers(&[place]);
        let entry = builder.add("Gather", &[&squeezed, &index]);
        let entry = builder.add("Squeeze", &[&entry, &zero]);
        let heads = builder.reshape(&entry, &[5, -1, 4]);
        let ordered = builder.transpose(&heads, &[1, 0, 2]);
        builder.reshape(&ordered, &[-1, 3, 5, 4])
    });
    let scores = scores(&mut builder, &query, &key);
    let product = weighted(&mut builder, &scores, &value);
    let ordered = builder.transpose(&product, &[2, 0, 1, 3]);
    let flat = builder.reshape(&ordered, &[-1, 12]);
    let weight = builder.weight(&[12, 12]);
    let bias = builder.weight(&[12]);
    let projected = builder.add_with("Gemm", &[&flat, &weight, &bias], [int("transB", 1)]);
    let sequence = builder.reshape(&projected, &[5, -1, 12]);
    let output = builder.transpose(&sequence, &[1, 0, 2]);
    let sum = builder.add("Add", &[&output, "x"]);
    let fused = fused(&network(builder, &sum), 1);
    // The only transposition is the one of the weights, which ONNX Runtime computes once.
    assert_eq!(
        operators(&fused),
        ["Slice", "Slice", "Slice", "MultiHeadAttention", "Transpose"]
    );
}

/// Values before and after linear layers that other nodes read stay where they are.
#[test]
fn transpositions_that_are_read_elsewhere_are_not_moved() {
    let mut builder = Builder::default();
    let sequence = builder.transpose("x", &[1, 0, 2]);
    let [query, key, value] = [0; 3].map(|_| {
        let projected = builder.linear(&sequence, HIDDEN, HIDDEN);
        let heads = builder.reshape(&projected, &[5, -1, 3, 4]);
        builder.transpose(&heads, &[1, 2, 0, 3])
    });
    let scores = scores(&mut builder, &query, &key);
    let product = weighted(&mut builder, &scores, &value);
    let ordered = builder.transpose(&product, &[2, 0, 1, 3]);
    let joined = builder.reshape(&ordered, &[5, -1, 12]);
    let projected = builder.linear(&joined, HIDDEN, HIDDEN);
    let output = builder.transpose(&projected, &[1, 0, 2]);
    let dims: &[usize] = &[ROWS, HIDDEN];
    let also = builder.add("Relu", &[&projected]);
    let also = builder.transpose(&also, &[1, 0, 2]);
    let sequence = builder.add("Relu", &[&sequence]);
    let sequence = builder.transpose(&sequence, &[1, 0, 2]);
    let outputs = [(output.as_str(), dims), (&also, dims), (&sequence, dims)];
    fused(&builder.network(&X, &outputs), 1);
}

#[test]
fn an_attention_without_an_axis_of_heads_has_a_single_head() {
    let mut builder = Builder::default();
    let [query, key, value] = separate(&mut builder).map(|part| builder.reshape(&part, &[-1, 5, 4]));
    let key = builder.transpose(&key, &[0, 2, 1]);
    let scores = builder.add("MatMul", &[&query, &key]);
    let product = weighted(&mut builder, &scores, &value);
    let heads = builder.reshape(&product, &[-1, 3, 5, 4]);
    let output = joined(&mut builder, &heads);
    let fused = fused(&network(builder, &output), 1);
    let attention = fused
        .nodes()
        .iter()
        .find(|node| node.op_type == "MultiHeadAttention");
    assert_eq!(attention.unwrap().int("num_heads"), Some(1));
}

/// The learned query of a pooling layer, and values with another width.
#[test]
fn queries_keys_and_values_may_differ_in_size() {
    let mut builder = Builder::default();
    let [_, key, _] = separate(&mut builder);
    let first = builder.integers(&[0]);
    let second = builder.integers(&[1]);
    let token = builder.add("Slice", &["x", &first, &second, &second]);
    let query = builder.linear(&token, HIDDEN, HIDDEN);
    let query = builder.reshape(&query, &[0, 1, 3, 4]);
    let query = builder.transpose(&query, &[0, 2, 1, 3]);
    let value = builder.linear("x", HIDDEN, 6);
    let value = builder.reshape(&value, &[0, 5, 3, 2]);
    let value = builder.transpose(&value, &[0, 2, 1, 3]);
    let scores = scores(&mut builder, &query, &key);
    let product = weighted(&mut builder, &scores, &value);
    let ordered = builder.transpose(&product, &[0, 2, 1, 3]);
    let output = builder.reshape(&ordered, &[0, 1, 6]);
    let network = builder.network(&X, &[(&output, &[1, 6])]);
    let fused = fused(&network, 1);
    assert_eq!(count(&fused, "Transpose"), 0);
}

/// Rotary embeddings compute new elements, so the attention reads the rotated query and key.
#[test]
fn the_core_after_a_rotation_is_fused() {
    let mut builder = Builder::default();
    let [query, key, value] = separate(&mut builder);
    let angles = builder.weight(&[ROWS, WIDTH]);
    let query = builder.add("Mul", &[&query, &angles]);
    let key = builder.add("Mul", &[&key, &angles]);
    let scores = scores(&mut builder, &query, &key);
    let product = weighted(&mut builder, &scores, &value);
    let output = joined(&mut builder, &product);
    let fused = fused(&network(builder, &output), 1);
    // Two before and two after the rotations.
    assert_eq!(count(&fused, "Transpose"), 4);
}

#[test]
fn a_bias_per_query_and_key_is_kept() {
    for (dims, reshapes) in [
        (vec![1, HEADS, ROWS, ROWS], 0),
        (vec![1, 1, ROWS, ROWS], 0),
        (vec![HEADS, ROWS, ROWS], 1),
        (vec![ROWS, ROWS], 1),
    ] {
        let mut builder = Builder::default();
        let [query, key, value] = separate(&mut builder);
        let scores = scores(&mut builder, &query, &key);
        let bias = builder.weight(&dims);
        let biased = builder.add("Add", &[&bias, &scores]);
        let product = weighted(&mut builder, &biased, &value);
        let output = joined(&mut builder, &product);
        let fused = fused(&network(builder, &output), 1);
        assert_eq!(count(&fused, "Reshape"), reshapes, "{dims:?}");
    }
}

#[test]
fn a_bias_per_sample_is_kept() {
    let mut builder = Builder::default();
    let [query, key, value] = separate(&mut builder);
    let bias = builder.linear("x", HIDDEN, ROWS);
    let bias = builder.reshape(&bias, &[-1, 1, 5, 5]);
    let scores = scores(&mut builder, &query, &key);
    let biased = builder.add("Add", &[&scores, &bias]);
    let product = weighted(&mut builder, &biased, &value);
    let output = joined(&mut builder, &product);
    fused(&network(builder, &output), 1);
}

#[test]
fn a_guard_against_nan_is_dropped() {
    let mut builder = Builder::default();
    let [query, key, value] = separate(&mut builder);
    let scores = scores(&mut builder, &query, &key);
    let softmax = builder.add("Softmax", &[&scores]);
    let test = builder.add("IsNaN", &[&softmax]);
    let zero = builder.constant(&[], vec![0.0]);
    let guarded = builder.add("Where", &[&test, &zero, &softmax]);
    let product = builder.add("MatMul", &[&guarded, &value]);
    let output = joined(&mut builder, &product);
    let fused = fused(&network(builder, &output), 1);
    assert_eq!(operators(&fused), ["MultiHeadAttention"]);
}

/// The legacy exporter of torch computes targets from the shapes of replaced values.
#[test]
fn targets_computed_from_shapes_become_constants() {
    let mut builder = Builder::default();
    let [query, key, value] = separate(&mut builder);
    let scores = scores(&mut builder, &query, &key);
    let product = weighted(&mut builder, &scores, &value);
    let shape = builder.add("Shape", &[&product]);
    let output = joined(&mut builder, &product);
    let other = builder.linear("x", HIDDEN, HIDDEN);
    let reshaped = builder.add("Reshape", &[&other, &shape]);
    let back = builder.reshape(&reshaped, &[0, 5, 12]);
    let sum = builder.add("Add", &[&output, &back]);
    let fused = fused(&network(builder, &sum), 1);
    assert_eq!(count(&fused, "Shape"), 0);
}

#[test]
fn shapes_of_replaced_values_remain_readable() {
    let mut builder = Builder::default();
    let [query, key, value] = separate(&mut builder);
    let scores = scores(&mut builder, &query, &key);
    let product = weighted(&mut builder, &scores, &value);
    let shape = builder.add("Shape", &[&product]);
    let output = joined(&mut builder, &product);
    let one = builder.weight(&[1]);
    let expanded = builder.add("Expand", &[&one, &shape]);
    let back = builder.reshape(&expanded, &[0, 5, 12]);
    let sum = builder.add("Add", &[&output, &back]);
    let fused = fused(&network(builder, &sum), 1);
    assert_eq!(count(&fused, "Shape"), 1);
}

/// Values that are outputs or that other nodes read, such as cuts, keep their names and elements.
#[test]
fn values_with_other_readers_stay_available() {
    for place in 0..3 {
        let mut builder = Builder::default();
        let [query, key, value] = separate(&mut builder);
        let scores = scores(&mut builder, &query, &key);
        let product = weighted(&mut builder, &scores, &value);
        let ordered = builder.transpose(&product, &[0, 2, 1, 3]);
        let output = builder.reshape(&ordered, &[0, 0, 12]);
        let (read, dims): (&str, &[usize]) = [
            (query.as_str(), [3, 5, 4].as_slice()),
            (&product, &[3, 5, 4]),
            (&ordered, &[5, 3, 4]),
        ][place];
        let also = builder.add("Relu", &[read]);
        let outputs = [
            (output.as_str(), X.as_slice()),
            (also.as_str(), dims),
            (read, dims),
        ];
        fused(&builder.network(&X, &outputs), 1);
    }
}

#[test]
fn two_attentions_are_fused() {
    let mut builder = Builder::default();
    let [query, key, value] = separate(&mut builder);
    let sum = [0; 2].map(|_| {
        let scores = scores(&mut builder, &query, &key);
        let product = weighted(&mut builder, &scores, &value);
        joined(&mut builder, &product)
    });
    let output = builder.add("Add", &[&sum[0], &sum[1]]);
    fused(&network(builder, &output), 2);
}

/// Builds an attention from scaled scores, changed by `change`, which also receives the query.
fn changed(change: impl FnOnce(&mut Builder, String) -> String) -> Model {
    let mut builder = Builder::default();
    let [query, key, value] = separate(&mut builder);
    let scores = scores(&mut builder, &query, &key);
    let scores = change(&mut builder, scores);
    let product = weighted(&mut builder, &scores, &value);
    let output = joined(&mut builder, &product);
    network(builder, &output)
}

#[test]
fn scores_with_another_meaning_are_not_fused() {
    // A factor per head, zero, and a negative one.
    unfused(&changed(|builder, scores| {
        let factors = builder.weight(&[HEADS, 1, 1]);
        builder.add("Mul", &[&scores, &factors])
    }));
    unfused(&changed(|builder, scores| builder.scaled(&scores, 0.0)));
    unfused(&changed(|builder, scores| builder.scaled(&scores, -1.0)));
    // A mask of keys, and a factor that also multiplies the bias.
    unfused(&changed(|builder, scores| {
        let mask = builder.weight(&[1, 1, 1, ROWS]);
        builder.add("Add", &[&scores, &mask])
    }));
    unfused(&changed(|builder, scores| {
        let bias = builder.weight(&[ROWS, ROWS]);
        let biased = builder.add("Add", &[&scores, &bias]);
        builder.scaled(&biased, 0.5)
    }));
    // A mask that replaces scores.
    unfused(&changed(|builder, scores| {
        let threshold = builder.constant(&[], vec![0.1]);
        let low = builder.constant(&[], vec![-100.0]);
        let mask = builder.weight(&[ROWS, ROWS]);
        let mask = builder.add("Less", &[&mask, &threshold]);
        builder.add("Where", &[&mask, &low, &scores])
    }));
    // Swin's mask per window.
    unfused(&changed(|builder, scores| {
        let windows = builder.reshape(&scores, &[-1, 1, 3, 5, 5]);
        let mask = builder.weight(&[1, 1, 1, ROWS, ROWS]);
        let masked = builder.add("Add", &[&windows, &mask]);
        builder.reshape(&masked, &[-1, 3, 5, 5])
    }));
}

#[test]
fn a_softmax_over_another_axis_is_not_fused() {
    let mut builder = Builder::default();
    let [query, key, value] = separate(&mut builder);
    let scores = scores(&mut builder, &query, &key);
    let softmax = builder.add_with("Softmax", &[&scores], [int("axis", 2)]);
    let product = builder.add("MatMul", &[&softmax, &value]);
    let output = joined(&mut builder, &product);
    unfused(&network(builder, &output));
}

#[test]
fn scores_and_probabilities_that_are_read_elsewhere_are_not_fused() {
    let build = |reads_scores: bool, as_output: bool| {
        let mut builder = Builder::default();
        let [query, key, value] = separate(&mut builder);
        let scores = scores(&mut builder, &query, &key);
        let softmax = builder.add("Softmax", &[&scores]);
        let product = builder.add("MatMul", &[&softmax, &value]);
        let output = joined(&mut builder, &product);
        let mut read = if reads_scores { scores } else { softmax };
        if !as_output {
            read = builder.add("Relu", &[&read]);
        }
        builder.network(&X, &[(&output, &X), (&read, &[HEADS, ROWS, ROWS])])
    };
    for reads_scores in [false, true] {
        for as_output in [false, true] {
            unfused(&build(reads_scores, as_output));
        }
    }
}

/// An attention over the samples of a batch.
#[test]
fn a_sequence_that_depends_on_the_batch_is_not_fused() {
    let mut builder = Builder::default();
    let [query, key, value] = separate(&mut builder).map(|part| builder.transpose(&part, &[2, 1, 0, 3]));
    let scores = scores(&mut builder, &query, &key);
    let product = weighted(&mut builder, &scores, &value);
    let ordered = builder.transpose(&product, &[2, 0, 1, 3]);
    let output = builder.reshape(&ordered, &[0, 0, 12]);
    unfused(&network(builder, &output));
}

#[test]
fn networks_with_old_operators_stay_as_they_are() {
    let network = changed(|_, scores| scores);
    let mut proto = network.into_proto();
    proto.opset_import[0].version = 12;
    unfused(&Model::from_proto(proto).unwrap());
}

/// Fused networks are for a host's own sessions. The same operator in an upload is refused.
#[test]
fn fused_networks_are_not_admitted() {
    let network = changed(|_, scores| scores);
    let limits = ModelLimits::default();
    Model::admit(network.to_bytes().unwrap().into(), &limits).unwrap();
    let (fused, _) = fuse_attention(&network).unwrap();
    let refused = Model::admit(fused.to_bytes().unwrap().into(), &limits).unwrap_err();
    assert!(matches!(refused, GraphError::Inadmissible(_)), "{refused}");
    assert!(refused.to_string().contains("com.microsoft"), "{refused}");
}

/// Exporters record the modules of a node, which name its cuts.
#[test]
fn the_modules_of_an_attention_are_kept() {
    let network = changed(|_, scores| scores);
    let mut graph = network.graph().clone();
    for node in &mut graph.node {
        node.metadata_props = vec![frostline_graph::onnx::StringStringEntry {
            key: "module".into(),
            value: "block".into(),
        }];
    }
    let (fused, _) = fuse_attention(&network.with_graph(graph).unwrap()).unwrap();
    let recorded = |node: &NodeProto| node.metadata_props.len() == 1;
    assert!(fused.nodes().iter().all(recorded));
}

#[test]
fn a_fixed_batch_is_fused() {
    let network = changed(|_, scores| scores);
    let graph = GraphProto {
        input: vec![frostline_graph::build::value(
            "x",
            data_type::FLOAT,
            &[1, ROWS, HIDDEN].map(frostline_graph::build::Axis::Fixed),
        )],
        ..network.graph().clone()
    };
    let (fused, count) = fuse_attention(&network.with_graph(graph).unwrap()).unwrap();
    assert_eq!(count, 1);
    // For the comparison, the batch is open again.
    let open = GraphProto {
        input: vec![batched("x", &X)],
        ..fused.graph().clone()
    };
    assert_eq!(
        operators(&fused.with_graph(open).unwrap()),
        ["MultiHeadAttention"]
    );
}

mod needs_shared {
    use super::*;
    use frostline_needs::shared_file;

    /// ViT-B/16 of both exporters of torch, without weights.
    #[test]
    fn every_block_of_a_vit_is_fused_without_transpositions() {
        for opset in [17, 20] {
            let path = shared_file(&format!("models/skeletons/vit_b_16.opset{opset}.onnx"));
            let network = Model::read(path).unwrap();
            let (fused, attentions) = fuse_attention(&network).unwrap();
            assert_eq!(attentions, 12);
            assert_eq!(count(&fused, "Softmax"), 0);
            // The patches, and the weights of a projection per block.
            assert_eq!(count(&fused, "Transpose"), 1 + 12, "opset {opset}");
        }
    }
}
