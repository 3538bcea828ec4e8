//! Files with wrong sizes, references to other files, or small files that need much memory.

use crate::HostileModel;
use crate::parts::{changed, hostile};
use frostline_graph::build::node;
use frostline_graph::onnx::{NodeProto, StringStringEntry, TensorProto, ValueInfo};

pub(crate) fn all() -> Vec<HostileModel> {
    let mut all: Vec<HostileModel> = [
        ("external-data-absolute", "/etc/passwd"),
        ("external-data-above", "../../../../etc/passwd"),
        ("external-data-beside", "weights.bin"),
    ]
    .map(|(name, place)| external(name, place))
    .into();
    all.extend([
        wrong_size("weight-larger-than-its-data", |weight| {
            weight.dims = vec![1 << 30]
        }),
        wrong_size("weight-smaller-than-its-data", |weight| weight.dims = vec![1]),
        wrong_size("weight-of-overflowing-size", |weight| {
            weight.dims = vec![1 << 62, 1 << 62, 4]
        }),
        wrong_size("weight-of-negative-size", |weight| weight.dims = vec![-1, -3]),
        wrong_size("weight-twice", |weight| weight.int64_data = vec![1, 2, 3]),
    ]);
    all.extend([
        million_nodes(),
        million_weights(),
        many_inputs(),
        many_value_infos(),
        long_name(),
    ]);
    all.extend([same_names(), cycle(), string_weight()]);
    all
}

/// Changes the weight `w` of the harmless network.
fn weight(
    name: &'static str,
    change: impl FnOnce(&mut TensorProto),
    named: &'static [&'static str],
) -> HostileModel {
    let proto = changed(|graph| {
        if let Some(first) = graph.initializer.first_mut() {
            change(first);
        }
    });
    hostile(name, &proto, named)
}

fn wrong_size(name: &'static str, change: impl FnOnce(&mut TensorProto)) -> HostileModel {
    weight(name, change, &["`w`", "has an invalid size"])
}

fn external(name: &'static str, place: &str) -> HostileModel {
    let outside = |weight: &mut TensorProto| {
        weight.raw_data.clear();
        weight.data_location = 1;
        weight.external_data.push(StringStringEntry {
            key: "location".into(),
            value: place.into(),
        });
    };
    weight(name, outside, &["`w`", "outside the model", "weights inside"])
}

fn million_nodes() -> HostileModel {
    let chain = |index: usize| {
        let (from, to) = (format!("r{index}"), format!("r{}", index + 1));
        NodeProto {
            name: String::new(),
            ..node("Relu", &[&from], &[&to])
        }
    };
    let proto = changed(|graph| {
        graph.node = std::iter::once(node("Relu", &["x"], &["r0"]))
            .chain((0..1_000_000).map(chain))
            .collect();
    });
    hostile("million-nodes", &proto, &["nodes", "at most"])
}

/// Empty weights need 2 bytes in the file, but 500 in memory.
fn million_weights() -> HostileModel {
    let proto = changed(|graph| graph.initializer = vec![TensorProto::default(); 1_000_000]);
    hostile("million-weights", &proto, &["weights", "at most"])
}

/// Empty names need 2 bytes in the file, but 24 in memory.
fn many_inputs() -> HostileModel {
    let proto = changed(|graph| {
        let sum = NodeProto {
            input: vec![String::new(); 3_000_000],
            ..node("Sum", &[], &["s"])
        };
        graph.node.push(sum);
    });
    hostile("node-of-3-million-inputs", &proto, &["bytes in memory"])
}

fn many_value_infos() -> HostileModel {
    let proto = changed(|graph| graph.value_info = vec![ValueInfo::default(); 2_000_000]);
    hostile("two-million-notes", &proto, &["bytes in memory"])
}

fn long_name() -> HostileModel {
    let proto = changed(|graph| graph.node.push(node("Relu", &["x"], &[&"long".repeat(250_000)])));
    hostile("name-of-a-megabyte", &proto, &["longlong", "1000000 bytes"])
}

fn same_names() -> HostileModel {
    let proto = changed(|graph| graph.node.push(node("Exp", &["x"], &["r"])));
    hostile("two-values-of-one-name", &proto, &["`r`"])
}

fn cycle() -> HostileModel {
    let proto = changed(|graph| {
        graph
            .node
            .splice(0..1, [node("Exp", &["b"], &["r"]), node("Log", &["r"], &["b"])])
            .for_each(drop)
    });
    hostile("circle", &proto, &["`b`", "before"])
}

fn string_weight() -> HostileModel {
    let become_texts = |weight: &mut TensorProto| {
        weight.data_type = 8;
        weight.raw_data.clear();
        weight.string_data = vec!["a".into(), "b".into(), "c".into()];
    };
    weight("tensor-of-texts", become_texts, &["`w`", "texts"])
}
