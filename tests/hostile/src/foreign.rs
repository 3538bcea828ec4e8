//! Operators outside of ONNX's default domain, and ONNX operators that classifiers do not need.

use crate::HostileModel;
use crate::parts::{changed, hostile, network};
use bytes::Bytes;
use frostline_graph::build::node;
use frostline_graph::onnx::{FunctionHead, OperatorSetId};
use prost::Message;

pub(crate) fn all() -> Vec<HostileModel> {
    vec![
        domain("custom-domain", "evil.example", &["`r`", "evil.example"]),
        domain("domain-com-microsoft", "com.microsoft", &["`r`", "com.microsoft"]),
        domain("domain-ai-onnx-ml", "ai.onnx.ml", &["`r`", "ai.onnx.ml"]),
        operator("random", "RandomNormalLike", &["`r`", "RandomNormalLike"]),
        operator("size-of-result-from-data", "NonZero", &["`r`", "NonZero"]),
        operator("unknown-operator", "Crash", &["`r`", "Crash"]),
        recursive_function(),
        training(),
        ancient(),
    ]
}

fn domain(name: &'static str, domain: &str, named: &'static [&'static str]) -> HostileModel {
    let mut proto = changed(|graph| {
        if let Some(first) = graph.node.first_mut() {
            first.domain = domain.into();
        }
    });
    proto.opset_import.push(OperatorSetId {
        domain: domain.into(),
        version: 1,
    });
    hostile(name, &proto, named)
}

fn operator(name: &'static str, operator: &str, named: &'static [&'static str]) -> HostileModel {
    hostile(
        name,
        &network(vec![node(operator, &["x"], &["r"])], vec![]),
        named,
    )
}

fn recursive_function() -> HostileModel {
    let itself = FunctionHead {
        name: "Again".into(),
        domain: "own".into(),
        node: vec![node("Again", &["a"], &["b"])],
        ..FunctionHead::default()
    };
    let mut proto = changed(|_| ());
    proto.functions.push(Bytes::from(itself.encode_to_vec()));
    hostile("function-that-calls-itself", &proto, &["functions"])
}

fn training() -> HostileModel {
    let mut proto = changed(|_| ());
    proto.training_info.push(Bytes::new());
    hostile("training-graphs", &proto, &["training"])
}

fn ancient() -> HostileModel {
    let mut proto = changed(|_| ());
    proto.opset_import.iter_mut().for_each(|set| set.version = 1);
    hostile("operators-of-version-1", &proto, &["version 1"])
}
