//! Gradients of transformer operators, compared with central differences in `f64`.

use super::harness::{Net, PLAIN, check, tensor};
use super::table::overwritten;
use crate::TrainingGraph;
use frostline_graph::build::{float, int, ints, node, text};
use frostline_graph::onnx::NodeProto;
use frostline_tensor::DType;

const TOKENS: [usize; 2] = [5, 4];

/// Applies the node to the probed tokens `h`. The result is `y`.
fn tokens(node: NodeProto, features: usize) -> Net {
    Net::new(&TOKENS)
        .probed(&TOKENS)
        .node(node)
        .classified("y", features)
}

#[test]
fn layer_normalization() {
    for (axis, shape) in [(-1, &[4][..]), (1, &[5, 4]), (2, &[4])] {
        let norm = node("LayerNormalization", &["h", "scale", "bias"], &["y"])
            .with([int("axis", axis), float("epsilon", 1e-3)]);
        check(tokens(norm, 20).weight("scale", shape).weight("bias", shape));
    }
    let plain = node("LayerNormalization", &["h", "scale"], &["y", "mean", "inverse"]);
    check(tokens(plain, 20).weight("scale", &[4]));
    let root = node("RMSNormalization", &["h", "scale"], &["y"]).with([float("epsilon", 1e-3)]);
    check(tokens(root, 20).weight("scale", &[4]).opset(23));
}

#[test]
fn selections_move_before_norms() {
    for (norm, axis, places, comes_first) in [
        (-1, 1, &[3_i64][..], "Gather"),
        (2, 1, &[3, 1], "Gather"),
        (2, -2, &[-1], "Gather"),
        // Selection along a normalized axis.
        (1, 1, &[3], "LayerNormalization"),
        (-1, 2, &[3], "LayerNormalization"),
    ] {
        let (scale, features) = match (norm, axis) {
            (1, _) => (&TOKENS[..], 4),
            (_, 2) => (&TOKENS[1..], 5),
            _ => (&TOKENS[1..], 4 * places.len()),
        };
        let net = || {
            Net::new(&TOKENS)
                .probed(&TOKENS)
                .weight("scale", scale)
                .weight("bias", scale)
                .ints("places", places)
                .node(node("LayerNormalization", &["h", "scale", "bias"], &["n"]).with([int("axis", norm)]))
                .node(node("Gather", &["n", "places"], &["y"]).with([int("axis", axis)]))
                .classified("y", features)
        };
        check(net());
        let graph = TrainingGraph::build(&net().model(), 2, PLAIN).unwrap();
        let operators = graph.model.nodes().iter().map(|node| node.op_type.as_str());
        // Skip the Gather of a single element at the beginning of the step.
        let mut found = operators.filter(|name| ["Gather", "LayerNormalization"].contains(name));
        let first = found.nth(1);
        assert_eq!(first, Some(comes_first), "norm {norm}, selection {axis}");
    }
}

#[test]
fn a_norm_that_is_read_twice_stays_whole() {
    let net = Net::new(&TOKENS)
        .probed(&TOKENS)
        .weight("scale", &[4])
        .ints("places", &[0])
        .op("LayerNormalization", &["h", "scale"], "n")
        .op("Mul", &["n", "n"], "square")
        .node(node("Gather", &["n", "places"], &["first"]).with([int("axis", 1)]))
        .op("Add", &["square", "first"], "y");
    check(net.classified("y", 20));
}

#[test]
fn layer_normalization_in_parts() {
    let mean = |of: &str, to: &str| node("ReduceMean", &[of], &[to]).with([ints("axes", &[-1])]);
    let net = Net::new(&TOKENS)
        .probed(&TOKENS)
        .stored("two", &tensor(&[], DType::F64, vec![2.0]))
        .stored("epsilon", &tensor(&[], DType::F64, vec![1e-3]))
        .weight("scale", &[4])
        .weight("bias", &[4])
        .node(mean("h", "mean"))
        .op("Sub", &["h", "mean"], "centered")
        .op("Pow", &["centered", "two"], "square")
        .node(mean("square", "variance"))
        .op("Add", &["variance", "epsilon"], "raised")
        .op("Sqrt", &["raised"], "deviation")
        .op("Div", &["centered", "deviation"], "normal")
        .op("Mul", &["normal", "scale"], "scaled")
        .op("Add", &["scaled", "bias"], "y");
    check(net.classified("y", 20).opset(17));
}

#[test]
fn lookups() {
    for (axis, places, features) in [
        (1, &[2_i64, -1, 0][..], 12),
        (1, &[1, 2], 8),
        (1, &[1, 1, 3], 12),
        (2, &[3, 1, 0, 2], 20),
    ] {
        let gather = node("Gather", &["h", "places"], &["y"]).with([int("axis", axis)]);
        check(tokens(gather, features).ints("places", places));
    }
    let one = Net::new(&TOKENS)
        .probed(&TOKENS)
        .node(node("Constant", &[], &["first"]).with([int("value_int", 0)]))
        .node(node("Gather", &["h", "first"], &["y"]).with([int("axis", 1)]));
    check(one.classified("y", 4));
    let table = Net::new(&TOKENS)
        .weight("table", &[6, 4])
        .ints("places", &[0, 5, 5, 2, -6])
        .op("Gather", &["table", "places"], "bias")
        .op("Add", &["x", "bias"], "y");
    check(table.classified("y", 20));
    let nd = Net::new(&TOKENS)
        .weight("scale", &[6, 4])
        .op("Mul", &["scale", "scale"], "table")
        .ints("list", &[0, 5, 5, 2, 1])
        .ints("column", &[5, 1])
        .op("Reshape", &["list", "column"], "places")
        .op("GatherND", &["table", "places"], "bias")
        .op("Add", &["x", "bias"], "y");
    check(nd.classified("y", 20));
    let elements = Net::new(&TOKENS)
        .probed(&TOKENS)
        .ints("list", &[0, 3, 3, 1])
        .ints("to", &[3, 2, 4])
        .op("Expand", &["list", "to"], "places")
        .node(node("GatherElements", &["h", "places"], &["y"]).with([int("axis", 1)]));
    check(elements.classified("y", 8));
}

#[test]
fn overwritten_elements() {
    check(overwritten());
    let sample = Net::new(&TOKENS)
        .probed(&TOKENS)
        .weight("token", &[5, 4])
        .ints("sample", &[1])
        .ints("column", &[1, 1])
        .op("Reshape", &["sample", "column"], "place")
        .ints("to", &[1, 5, 4])
        .op("Reshape", &["token", "to"], "update")
        .op("ScatterND", &["h", "place", "update"], "y");
    check(sample.classified("y", 20));
}

#[test]
fn slices_and_parts() {
    let slice = |starts: &[i64], ends: &[i64], axes: &[i64], steps: &[i64], features| {
        let net = tokens(
            node("Slice", &["h", "starts", "ends", "axes", "steps"], &["y"]),
            features,
        );
        let net = net.ints("starts", starts).ints("ends", ends);
        check(net.ints("axes", axes).ints("steps", steps));
    };
    slice(&[1], &[-1], &[1], &[1], 12);
    slice(&[1, 0], &[i64::MAX, 3], &[1, 2], &[2, 1], 6);
    slice(&[-1], &[i64::MIN], &[1], &[-1], 20);
    slice(&[3, 4], &[0, 0], &[-1, 1], &[-2, -3], 4);
    let older =
        node("Slice", &["h"], &["y"]).with([ints("starts", &[2]), ints("ends", &[9]), ints("axes", &[1])]);
    check(tokens(older, 12).opset(9));
    let rolled = Net::new(&TOKENS)
        .probed(&TOKENS)
        .node(node("Split", &["h", "sizes"], &["a", "b", "c"]).with([int("axis", 1)]))
        .ints("sizes", &[2, 1, 2])
        .node(node("Concat", &["c", "a"], &["y"]).with([int("axis", 1)]));
    check(rolled.classified("y", 16));
    let equal = Net::new(&TOKENS)
        .probed(&TOKENS)
        .node(node("Split", &["h"], &["a", "b"]).with([int("axis", 2), int("num_outputs", 2)]))
        .op("Mul", &["a", "b"], "y");
    check(equal.classified("y", 10));
}

#[test]
fn repetitions() {
    let token = Net::new(&TOKENS)
        .weight("token", &[1, 1, 4])
        .node(node("Shape", &["x"], &["batch"]).with([int("end", 1)]))
        .ints("rest", &[2, 1])
        .node(node("Concat", &["batch", "rest"], &["sizes"]).with([int("axis", 0)]))
        .op("Expand", &["token", "sizes"], "tokens")
        .node(node("Concat", &["tokens", "x"], &["y"]).with([int("axis", 1)]));
    check(token.classified("y", 28));
    let tiled = Net::new(&TOKENS).probed(&TOKENS).ints("times", &[1, 2, 3]);
    check(tiled.op("Tile", &["h", "times"], "y").classified("y", 120));
}

#[test]
fn products_of_vectors_and_batches() {
    let vector = Net::new(&TOKENS).probed(&TOKENS).weight("w", &[4]);
    check(vector.op("MatMul", &["h", "w"], "y").classified("y", 5));
    let left = Net::new(&TOKENS).probed(&TOKENS).weight("w", &[5]);
    check(left.op("MatMul", &["w", "h"], "y").classified("y", 4));
    let spread = Net::new(&TOKENS).probed(&TOKENS).weight("w", &[2, 1, 4, 3]);
    check(
        spread
            .op("MatMul", &["h", "w"], "m")
            .node(node("Transpose", &["m"], &["y"]).with([ints("perm", &[1, 0, 2, 3])]))
            .classified("y", 30),
    );
}

#[test]
fn einsum() {
    for (equation, shape, features) in [
        ("nij,jk->nik", &[4, 3][..], 15),
        ("...ij,jk->...ik", &[4, 3], 15),
        ("nij,ikj->nki", &[5, 2, 4], 10),
        ("bij,kj", &[2, 4], 10),
        ("nij,ij->nij", &[5, 4], 20),
    ] {
        let product = node("Einsum", &["h", "w"], &["y"]).with([text("equation", equation)]);
        check(tokens(product, features).weight("w", shape));
    }
    let scores = node("Einsum", &["h", "x"], &["y"]).with([text("equation", "bnd,bmd->bnm")]);
    check(tokens(scores, 25));
    for (equation, features) in [("nij->nji", 20), ("nij->nj", 4), ("...j->...", 5)] {
        let alone = node("Einsum", &["h"], &["y"]).with([text("equation", equation)]);
        check(tokens(alone, features));
    }
    let chain = node("Einsum", &["h", "w", "v"], &["y"]).with([text("equation", "nij,jk,ikl->nl")]);
    let net = tokens(chain, 3).weight("w", &[4, 2]).weight("v", &[5, 2, 3]);
    check(net);
}

#[test]
fn attention() {
    let heads = [2, 5, 4];
    for mask in ["", "mask", "allowed"] {
        let net = Net::new(&heads)
            .probed(&heads)
            .weight("k", &heads)
            .weight("mask", &[2, 5, 5])
            .op("Mul", &["h", "k"], "key")
            .op("Greater", &["mask", "zero"], "allowed")
            .stored("zero", &tensor(&[], DType::F64, vec![-0.9]))
            .node(node("Attention", &["h", "key", "h", mask], &["y"]).with([float("scale", 0.3)]));
        check(net.classified("y", 40).opset(23));
    }
    let flat =
        node("Attention", &["h", "x", "h"], &["y"]).with([int("q_num_heads", 2), int("kv_num_heads", 2)]);
    check(tokens(flat, 20).opset(23));
}

#[test]
fn attention_that_looks_back_or_shares_keys() {
    let heads = [4, 5, 4];
    for (causal, shared) in [(1, 4), (0, 2), (1, 1)] {
        let net = Net::new(&heads)
            .probed(&heads)
            .ints("first", &[0])
            .ints("shared", &[shared])
            .ints("heads", &[1])
            .op("Slice", &["h", "first", "shared", "heads"], "key")
            .weight("v", &[shared as usize, 5, 4])
            .op("Mul", &["key", "v"], "value")
            .node(node("Attention", &["h", "key", "value"], &["y"]).with([int("is_causal", causal)]));
        check(net.classified("y", 80).opset(23));
    }
}

#[test]
fn values_independent_of_the_data_need_no_rule() {
    // Mask from Range, Mod and Equal, and factor from the width of a head.
    let net = Net::new(&TOKENS)
        .probed(&TOKENS)
        .op("Shape", &["x"], "shape")
        .node(node("Constant", &[], &["last"]).with([int("value_int", 2)]))
        .op("Gather", &["shape", "last"], "width")
        .node(node("Cast", &["width"], &["wide"]).with([int("to", 11)]))
        .op("Sqrt", &["wide"], "root")
        .op("Div", &["h", "root"], "scaled")
        .node(node("Constant", &[], &["zero"]).with([int("value_int", 0)]))
        .node(node("Constant", &[], &["one"]).with([int("value_int", 1)]))
        .op("Range", &["zero", "width", "one"], "places")
        .node(node("Constant", &[], &["two"]).with([int("value_int", 2)]))
        .op("Mod", &["places", "two"], "parity")
        .op("Equal", &["parity", "one"], "odd")
        .stored("low", &tensor(&[], DType::F64, vec![-0.5]))
        .op("Where", &["odd", "low", "scaled"], "y");
    check(net.classified("y", 20));
}
