//! Splits before a cut through several tensors.

use super::support::{noisy, run};
use crate::build::{Axis, batched, initializer, int, integers, ints, model, node, value};
use crate::onnx::{GraphProto, data_type};
use crate::{Model, ModelLimits};
use frostline_tensor::Tensor;

/// Convolutional network in the making.
#[derive(Default)]
struct Layers(GraphProto);

impl Layers {
    /// Adds a convolution of 3 x 3 pixels, and an activation that produces `to`.
    fn conv(&mut self, from: &str, to: &str, channels: [usize; 2], stride: i64) {
        let weight = format!("{to}.weight");
        let seed = self.0.node.len() as u64;
        let values = noisy(seed, &[channels[1], channels[0], 3, 3]);
        self.0.initializer.push(initializer(&weight, &values));
        let linear = format!("{to}.linear");
        let conv = node("Conv", &[from, &weight], &[&linear]);
        self.0
            .node
            .push(conv.with([ints("strides", &[stride; 2]), ints("pads", &[1; 4])]));
        self.0.node.push(node("Relu", &[&linear], &[to]));
    }

    fn pool(&mut self, from: &str, to: &str) {
        let pool = node("MaxPool", &[from], &[to]);
        self.0
            .node
            .push(pool.with([ints("kernel_shape", &[2; 2]), ints("strides", &[2; 2])]));
    }

    /// Doubles the height and the width of `from`, and adds `skip`.
    fn up(&mut self, from: &str, skip: &str, to: &str) {
        let larger = format!("{to}.larger");
        let sizes = format!("{to}.sizes");
        self.0.initializer.push(initializer(
            &sizes,
            &Tensor::f32([4], vec![1., 1., 2., 2.]).unwrap(),
        ));
        self.0.node.push(node("Resize", &[from, "", &sizes], &[&larger]));
        self.0.node.push(node("Add", &[&larger, skip], &[to]));
    }

    /// Adds a classifier of the mean of each channel of `from`.
    fn finish(mut self, from: &str, channels: usize) -> Model {
        let weight = noisy(99, &[channels, 3]);
        self.0.initializer.push(initializer("classes", &weight));
        self.0.node.extend([
            node("GlobalAveragePool", &[from], &["means"]),
            node("Flatten", &["means"], &["flat"]).with([int("axis", 1)]),
            node("Gemm", &["flat", "classes"], &["y"]),
        ]);
        self.0.input = vec![batched("x", &[2, 16, 16])];
        self.0.output = vec![batched("y", &[3])];
        Model::from_proto(model(17, self.0)).unwrap()
    }
}

/// Returns an encoder with three levels, whose results the decoder reads.
fn u_net() -> Model {
    let mut layers = Layers::default();
    layers.conv("x", "a", [2, 4], 1);
    layers.pool("a", "half");
    layers.conv("half", "b0", [4, 8], 1);
    layers.conv("b0", "b", [8, 8], 1);
    layers.pool("b", "quarter");
    layers.conv("quarter", "c0", [8, 8], 1);
    layers.conv("c0", "c", [8, 8], 1);
    layers.up("c", "b", "d");
    layers.conv("d", "e", [8, 4], 1);
    layers.up("e", "a", "f");
    layers.finish("f", 4)
}

/// Returns a network with a branch of 16 x 16 pixels and one of 8 x 8, which exchange their results after `blocks`.
fn two_branches(blocks: usize) -> Model {
    let mut layers = Layers::default();
    layers.conv("x", "stem", [2, 4], 1);
    layers.conv("stem", "h0", [4, 4], 1);
    layers.conv("stem", "l0", [4, 4], 2);
    for branch in ["h", "l"] {
        for block in 0..blocks {
            layers.conv(
                &format!("{branch}{block}"),
                &format!("{branch}{}", block + 1),
                [4, 4],
                1,
            );
        }
    }
    layers.up(&format!("l{blocks}"), &format!("h{blocks}"), "mixed");
    layers.finish("mixed", 4)
}

/// Returns a residual network, of which a pyramid reads the results of three stages.
fn pyramid() -> Model {
    let mut layers = Layers::default();
    layers.conv("x", "c1", [2, 8], 1);
    for (from, to) in [("c1", "c2"), ("c2", "c3"), ("c3", "c4")] {
        let [narrow, wide, inner] = ["narrow", "wide", "inner"].map(|what| format!("{to}.{what}"));
        layers.conv(from, &narrow, [8, 8], 2);
        layers.conv(&narrow, &inner, [8, 16], 1);
        layers.conv(&inner, &wide, [16, 8], 1);
        layers.0.node.push(node("Add", &[&narrow, &wide], &[to]));
    }
    layers.up("c4", "c3", "p3");
    layers.up("p3", "c2", "p2");
    layers.finish("p2", 8)
}

/// Returns the names of the cuts through several tensors and their bytes per sample.
fn joints(network: &Model) -> Vec<(String, usize)> {
    let cuts = network.network().unwrap().cuts.into_iter();
    let joints = cuts.filter(|cut| cut.is_joint());
    joints.map(|cut| (cut.name, cut.bytes_per_sample)).collect()
}

/// Checks the splits before `freeze`, and that all parts compute the same bits as the network.
#[track_caller]
fn check(network: &Model, freeze: &str, expected: &[(&str, usize)]) {
    let (frozen, freeze) = network.with_cut(freeze).unwrap();
    let whole = frozen.with_splits(&freeze).unwrap();
    let found = joints(&whole);
    let splits: Vec<(&str, usize)> = found
        .iter()
        .map(|(name, bytes)| (name.as_str(), *bytes))
        .collect();
    let splits: Vec<(&str, usize)> = splits.into_iter().filter(|(name, _)| *name != freeze).collect();
    assert_eq!(splits, expected);
    let row = whole.network().unwrap().input.shape.batched(2);
    let input = noisy(3, row.dims());
    let prefix = frozen.slice(None, Some(&freeze)).unwrap();
    let same = whole.slice(None, Some(&freeze)).unwrap();
    assert_eq!(same.nodes().len(), prefix.nodes().len());
    let activations = run(&prefix, &input);
    assert_eq!(run(&same, &input), activations);
    let output = run(network, &input);
    assert_eq!(run(&whole, &input), output);
    let uploaded = whole.layers_with_splits(&freeze).unwrap();
    let limits = ModelLimits::default();
    let uploaded = Model::admit(uploaded.to_bytes().unwrap().into(), &limits).unwrap();
    assert_eq!(run(&uploaded, &input), activations);
    let received = uploaded.slice(None, Some(&freeze)).unwrap();
    assert_eq!(run(&received, &input), activations);
    assert_eq!(received.nodes().len(), prefix.nodes().len());
    for (split, bytes) in expected {
        let rows = run(&uploaded.slice(None, Some(split)).unwrap(), &input);
        assert_eq!(rows.as_bytes().len(), 2 * bytes, "{split}");
        let middle = whole.slice(Some(split), Some(&freeze)).unwrap();
        let concatenations = middle.nodes().iter().filter(|node| node.op_type == "Concat");
        assert_eq!(concatenations.count(), usize::from(freeze.contains(',')));
        assert_eq!(run(&middle, &rows), activations, "{split}");
        assert_eq!(
            run(&whole.slice(Some(split), None).unwrap(), &rows),
            output,
            "{split}"
        );
    }
    for (earlier, later) in expected.iter().zip(expected.iter().skip(1)) {
        let rows = run(&whole.slice(None, Some(earlier.0)).unwrap(), &input);
        let stage = whole.slice(Some(earlier.0), Some(later.0)).unwrap();
        let direct = run(&whole.slice(None, Some(later.0)).unwrap(), &input);
        assert_eq!(run(&stage, &rows), direct, "{later:?}");
    }
    let sorted = |model: &Model| {
        let mut nodes = model.nodes().to_vec();
        nodes.sort_by(|left, right| left.name.cmp(&right.name));
        nodes
    };
    let restored = whole.without_joints().unwrap();
    let original = frozen.without_joints().unwrap();
    assert_eq!(sorted(&restored), sorted(&original));
    assert_eq!(restored.graph().initializer, original.graph().initializer);
}

#[test]
fn skip_connections_and_the_next_level_are_a_split() {
    let a = 4 * 4 * 16 * 16;
    let b = 4 * 8 * 8 * 8;
    let half = 4 * 4 * 8 * 8;
    let quarter = 4 * 8 * 4 * 4;
    let expected = [
        ("a,half", a + half),
        ("a,b0", a + b),
        ("a,b,quarter", a + b + quarter),
        ("a,b,c0", a + b + quarter),
    ];
    check(&u_net(), "a,b,c", &expected);
}

#[test]
fn branches_are_cut_block_by_block() {
    let both = 4 * 4 * (16 * 16 + 8 * 8);
    let names = ["h0,l0", "l0,h1", "l0,h2", "h2,l1"];
    check(&two_branches(2), "h2,l2", &names.map(|name| (name, both)));
}

#[test]
fn residual_blocks_between_the_levels_stay_whole() {
    let c2 = 4 * 8 * 8 * 8;
    let c3 = 4 * 8 * 4 * 4;
    let c4 = 4 * 8 * 2 * 2;
    let expected = [
        ("c2,c3.narrow", c2 + c3),
        ("c2,c3", c2 + c3),
        ("c2,c3,c4.narrow", c2 + c3 + c4),
    ];
    check(&pyramid(), "c2,c3,c4", &expected);
}

#[test]
fn the_number_of_splits_and_of_their_tensors_is_limited() {
    let network = two_branches(20);
    let (frozen, freeze) = network.with_cut("h20,l20").unwrap();
    let found = joints(&frozen.with_splits(&freeze).unwrap());
    assert_eq!(found.len(), 25);
    assert_eq!(found[23].0, "h20,l19");
    let mut layers = Layers::default();
    layers.conv("x", "stem", [2, 4], 1);
    let branches: Vec<String> = (0..20).map(|branch| format!("b{branch}")).collect();
    for branch in &branches {
        layers.conv("stem", branch, [4, 4], 1);
    }
    let branches: Vec<&str> = branches.iter().map(String::as_str).collect();
    layers
        .0
        .node
        .push(node("Concat", &branches, &["all"]).with([int("axis", 1)]));
    layers.conv("all", "end", [80, 90], 1);
    layers
        .0
        .node
        .push(node("Concat", &["stem", "end"], &["both"]).with([int("axis", 1)]));
    let (frozen, freeze) = layers.finish("both", 94).with_cut("stem,end").unwrap();
    let found = joints(&frozen.with_splits(&freeze).unwrap());
    let counts: Vec<usize> = found.iter().map(|(name, _)| name.split(',').count()).collect();
    assert_eq!(counts, [2, 3, 4, 5, 6, 7, 8, 2, 2]);
    assert_eq!(found[7].0, "stem,all");
}

#[test]
fn single_cuts_before_a_single_freeze_cut_are_enough() {
    let network = u_net();
    for freeze in ["f", "flat", "x"] {
        assert_eq!(network.with_splits(freeze).unwrap(), network);
    }
    assert!(network.with_splits("b").is_err());
}

/// Returns layers with an input that joins words and a mask of the tokens. An element of `layers` is true for each layer
/// that reads the mask.
fn masked(layers: &[bool]) -> Model {
    let float = || int("to", data_type::FLOAT.into());
    let mut graph = GraphProto::default();
    graph.node.extend([
        node("Cast", &["mask"], &["numbers"]).with([float()]),
        node("Reshape", &["numbers", "column"], &["single"]),
        node("Expand", &["single", "wide"], &["full"]),
    ]);
    let mut from = "words".to_owned();
    for (number, reads_mask) in (1..).zip(layers) {
        let to = format!("l{number}");
        let [weight, product, masked] = ["weight", "product", "masked"].map(|what| format!("{to}.{what}"));
        graph
            .initializer
            .push(initializer(&weight, &noisy(number, &[8, 8])));
        graph.node.extend([
            node("MatMul", &[&from, &weight], &[&product]),
            match reads_mask {
                true => node("Mul", &[&product, "full"], &[&masked]),
                false => node("Sin", &[&product], &[&masked]),
            },
            node("Tanh", &[&masked], &[&to]),
        ]);
        from = to;
    }
    graph.initializer.extend([
        initializer("classes", &noisy(9, &[8, 2])),
        integers("column", &[0, 4, 1]),
        integers("wide", &[1, 4, 8]),
    ]);
    graph.node.extend([
        node("ReduceMean", &[&from], &["mean"]).with([ints("axes", &[1]), int("keepdims", 0)]),
        node("Gemm", &["mean", "classes"], &["y"]),
    ]);
    graph.input = vec![
        batched("words", &[4, 8]),
        value("mask", data_type::INT64, &[Axis::batch(), Axis::Fixed(4)]),
    ];
    graph.output = vec![batched("y", &[2])];
    let network = Model::from_proto(model(17, graph)).unwrap();
    network.with_joint_input().unwrap()
}

/// No layer of the slice reads the large mask between the first two cuts.
#[test]
fn layers_without_the_mask_are_between_two_splits() {
    let bytes = 4 * (4 + 4 * 8);
    check(
        &masked(&[true, false, true, true]),
        "l4.masked",
        &[("mask,l1", bytes), ("mask,l2", bytes)],
    );
}

/// The mask with an element per token is part of the cut, not the one with an element per value.
#[test]
fn a_network_without_single_cuts_is_split_with_its_mask() {
    let bytes = 4 * (4 + 4 * 8);
    let expected = [("mask,l1", bytes)];
    check(&masked(&[true; 3]), "l3.masked", &expected);
    check(&masked(&[true; 3]), "mask,l2", &expected);
}

#[test]
fn tensors_that_cross_several_joint_cuts_keep_their_names() {
    let (joined, freeze) = u_net().with_cut("a,b,c").unwrap();
    let network = joined.with_splits(&freeze).unwrap().network().unwrap();
    let joints = network.cuts.iter().filter(|cut| cut.is_joint());
    let mut several = 0;
    for cut in joints {
        let names: Vec<&str> = cut.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names.join(","), cut.name);
        several += 1;
    }
    assert!(several > 1);
}
