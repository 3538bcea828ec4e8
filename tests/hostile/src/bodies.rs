//! Models with control flow, which has graphs inside nodes.

use crate::HostileModel;
use crate::parts::{WIDTH, changed, hostile, network};
use bytes::BufMut;
use frostline_graph::build::{Axis, int, integers, node, value};
use frostline_graph::onnx::{AttributeProto, AttributeType, GraphProto, data_type};
use prost::encoding::{WireType, encode_key, encode_varint};

pub(crate) fn all() -> Vec<HostileModel> {
    vec![
        endless_loop(),
        scan(),
        branches(),
        hidden_body(),
        nested_bodies(),
        nested_groups(),
    ]
}

fn body(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        r#type: AttributeType::Graph.into(),
        g: Some(Box::new(graph)),
        ..AttributeProto::default()
    }
}

fn row(name: &str) -> frostline_graph::onnx::ValueInfo {
    value(name, data_type::FLOAT, &[Axis::batch(), Axis::Fixed(WIDTH)])
}

/// Loop with 2^62 iterations.
fn endless_loop() -> HostileModel {
    let inside = GraphProto {
        name: "turn".into(),
        node: vec![
            node("Identity", &["on"], &["still_on"]),
            node("Exp", &["state"], &["next"]),
        ],
        input: vec![
            value("turn", data_type::INT64, &[]),
            value("on", data_type::BOOL, &[]),
            row("state"),
        ],
        output: vec![value("still_on", data_type::BOOL, &[]), row("next")],
        ..GraphProto::default()
    };
    let turns = node("Loop", &["turns", "", "x"], &["r"]).with([body("body", inside)]);
    hostile(
        "endless-loop",
        &network(vec![turns], vec![integers("turns", &[1 << 62])]),
        &["`r`", "Loop", "control flow"],
    )
}

fn scan() -> HostileModel {
    let inside = GraphProto {
        name: "step".into(),
        node: vec![node("Relu", &["row"], &["out"])],
        input: vec![value("row", data_type::FLOAT, &[Axis::Fixed(WIDTH)])],
        output: vec![value("out", data_type::FLOAT, &[Axis::Fixed(WIDTH)])],
        ..GraphProto::default()
    };
    let scan = node("Scan", &["x"], &["r"]).with([body("body", inside), int("num_scan_inputs", 1)]);
    hostile(
        "scan",
        &network(vec![scan], vec![]),
        &["`r`", "Scan", "control flow"],
    )
}

fn branches() -> HostileModel {
    let branch = |operator: &str| GraphProto {
        name: operator.into(),
        node: vec![node(operator, &["x"], &["out"])],
        output: vec![row("out")],
        ..GraphProto::default()
    };
    let choice = node("If", &["yes"], &["r"]).with([
        body("then_branch", branch("Relu")),
        body("else_branch", branch("Exp")),
    ]);
    let yes = node("Cast", &["one"], &["yes"]).with([int("to", data_type::BOOL.into())]);
    hostile(
        "branches",
        &network(vec![yes, choice], vec![integers("one", &[1])]),
        &["`r`", "If", "control flow"],
    )
}

/// Graph in an attribute that is declared as an integer. The operator does not expect a graph.
fn hidden_body() -> HostileModel {
    let hidden = AttributeProto {
        r#type: AttributeType::Int.into(),
        ..body("alpha", GraphProto::default())
    };
    let proto = changed(|graph| {
        if let Some(first) = graph.node.first_mut() {
            first.attribute.push(hidden);
        }
    });
    hostile("hidden-body", &proto, &["`r`", "Relu", "control flow"])
}

/// Encodes `inner` as the field `number` of a message.
fn wrapped(number: u32, inner: &[u8]) -> Vec<u8> {
    let mut outer = Vec::with_capacity(inner.len() + 12);
    encode_key(number, WireType::LengthDelimited, &mut outer);
    encode_varint(inner.len() as u64, &mut outer);
    outer.extend_from_slice(inner);
    outer
}

/// Graphs nested 2,000 deep. A recursive reader overflows the stack.
fn nested_bodies() -> HostileModel {
    const DEEP: usize = 2_000;
    const FIELDS: [u32; 3] = [6, 5, 1];
    let mut file = Vec::new();
    for _ in 0..DEEP {
        for field in FIELDS {
            file = wrapped(field, &file);
        }
    }
    // The outermost message is a node in the graph of a model (field 7).
    HostileModel {
        name: "nested-bodies",
        file: wrapped(7, &file),
        expected_fragments: &["control flow"],
    }
}

/// Groups nested a million deep. Groups are deprecated in protobuf, but readers still skip them recursively.
fn nested_groups() -> HostileModel {
    const DEEP: usize = 1_000_000;
    let mut file = Vec::with_capacity(2 * DEEP);
    for _ in 0..DEEP {
        encode_key(15, WireType::StartGroup, &mut file);
    }
    for _ in 0..DEEP {
        encode_key(15, WireType::EndGroup, &mut file);
    }
    file.put_u8(0);
    HostileModel {
        name: "nested-groups",
        file,
        expected_fragments: &["not an ONNX model", "another format"],
    }
}
