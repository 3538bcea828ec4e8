//! Admission of models: every real network is accepted, and everything else is refused.

use super::support::{filled, noisy, skeleton};
use crate::build::{batched, initializer, int, integers, ints, model, node, tensor, text};
use crate::onnx::{
    AttributeProto, AttributeType, GraphProto, ModelProto, NodeProto, OperatorSetId, StringStringEntry,
    TensorProto, TypeProto, ValueInfo, data_type,
};
use crate::{GraphError, Inadmissible, Model, ModelLimits};
use bytes::Bytes;
use prost::Message;

/// `x -> Conv -> Relu -> y`.
fn small() -> ModelProto {
    let graph = GraphProto {
        node: vec![
            node("Conv", &["x", "k"], &["c"]).with([ints("pads", &[1, 1, 1, 1])]),
            node("Relu", &["c"], &["y"]),
        ],
        initializer: vec![initializer("k", &noisy(1, &[2, 3, 3, 3]))],
        input: vec![batched("x", &[3, 4, 4])],
        output: vec![batched("y", &[2, 4, 4])],
        ..GraphProto::default()
    };
    model(17, graph)
}

fn changed(change: impl FnOnce(&mut ModelProto)) -> ModelProto {
    let mut proto = small();
    change(&mut proto);
    proto
}

pub(super) fn in_graph(change: impl FnOnce(&mut GraphProto)) -> ModelProto {
    changed(|proto| change(proto.graph.as_mut().unwrap()))
}

fn in_weight(change: impl FnOnce(&mut TensorProto)) -> ModelProto {
    in_graph(|graph| change(&mut graph.initializer[0]))
}

fn in_relu(change: impl FnOnce(&mut NodeProto)) -> ModelProto {
    in_graph(|graph| change(&mut graph.node[1]))
}

pub(super) fn admit(proto: &ModelProto) -> Result<Model, GraphError> {
    Model::admit(proto.encode_to_vec().into(), &ModelLimits::default())
}

/// Admits a model, expects a refusal whose message contains `words`, and returns it.
#[track_caller]
pub(super) fn refused(proto: &ModelProto, words: &[&str]) -> Inadmissible {
    refused_under(proto, &ModelLimits::default(), words)
}

#[track_caller]
fn refused_under(proto: &ModelProto, limits: &ModelLimits, words: &[&str]) -> Inadmissible {
    match Model::admit(proto.encode_to_vec().into(), limits) {
        Err(GraphError::Inadmissible(refusal)) => {
            let message = refusal.to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
            refusal
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plain_network_is_taken() {
    assert_eq!(admit(&small()).unwrap().nodes().len(), 2);
}

#[test]
fn the_demo_model_is_taken() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../zoo/demo/backbone.onnx");
    let bytes = std::fs::read(file).unwrap();
    Model::admit(bytes.into(), &ModelLimits::default()).unwrap();
}

#[test]
fn only_operators_on_the_list_are_taken() {
    let with = |operator: &str, domain: &str| {
        in_relu(|relu| {
            relu.op_type = operator.into();
            relu.domain = domain.into();
        })
    };
    for operator in ["Loop", "If", "Scan", "SequenceMap"] {
        let refusal = refused(&with(operator, ""), &["`y`", operator, "control flow"]);
        assert!(matches!(refusal, Inadmissible::ControlFlow { .. }));
    }
    for domain in ["com.microsoft", "ai.onnx.ml", "pkg.torch"] {
        let refusal = refused(&with("Relu", domain), &["`y`", domain, "ONNX's own"]);
        assert!(matches!(refusal, Inadmissible::Domain { .. }));
    }
    for operator in [
        "NonZero",
        "RandomNormal",
        "StringNormalizer",
        "SequenceAt",
        "relu",
        "",
    ] {
        let refusal = refused(&with(operator, "ai.onnx"), &["`y`", operator]);
        assert!(matches!(refusal, Inadmissible::Operator { .. }));
    }
    refused(&with("Gelu", ""), &["`Gelu`", "version 17", "added in 20"]);
    refused(
        &with("Upsample", ""),
        &["`Upsample`", "version 17", "removed after 9"],
    );
}

#[test]
fn operators_come_in_a_version_that_is_known() {
    let version = |version| changed(|proto| proto.opset_import[0].version = version);
    for refused_version in [-1, 0, 6, 26, i64::MAX] {
        refused(&version(refused_version), &["versions 7 to 25"]);
    }
    for taken in [7, 25] {
        admit(&version(taken)).unwrap();
    }
    let second = OperatorSetId {
        domain: "ai.onnx".into(),
        version: 17,
    };
    refused(
        &changed(|proto| proto.opset_import.push(second)),
        &["two operator sets"],
    );
    // A domain without nodes is accepted.
    let unused = OperatorSetId {
        domain: "ai.onnx.ml".into(),
        version: 3,
    };
    admit(&changed(|proto| proto.opset_import.push(unused))).unwrap();
}

#[test]
fn parts_no_classifier_needs_are_refused() {
    let part = || Bytes::from_static(b"\x0a\x01f");
    refused(
        &changed(|proto| proto.functions.push(part())),
        &["functions", "inlined"],
    );
    refused(
        &changed(|proto| proto.training_info.push(part())),
        &["training", "inference"],
    );
    refused(&changed(|proto| proto.configuration.push(part())), &["devices"]);
    refused(
        &in_graph(|graph| graph.sparse_initializer.push(part())),
        &["sparse", "dense"],
    );
    let sequence = ValueInfo {
        name: "s".into(),
        r#type: Some(TypeProto {
            sequence_type: Some(part()),
            ..TypeProto::default()
        }),
        ..ValueInfo::default()
    };
    refused(
        &in_graph(|graph| graph.input.push(sequence)),
        &["`s`", "not a tensor"],
    );
}

#[test]
fn a_node_holds_no_graph() {
    let inner = || Box::new(small().graph.unwrap());
    let body = AttributeProto {
        name: "body".into(),
        r#type: AttributeType::Graph.into(),
        g: Some(inner()),
        ..AttributeProto::default()
    };
    let refusal = refused(
        &in_relu(|relu| relu.attribute.push(body)),
        &["`y` (Relu)", "control flow"],
    );
    assert!(matches!(refusal, Inadmissible::ControlFlow { .. }));
    // The body is also found if the attribute declares a different kind.
    let hidden = AttributeProto {
        graphs: vec![*inner()],
        ..int("alpha", 1)
    };
    refused(
        &in_relu(|relu| relu.attribute.push(hidden)),
        &["`y` (Relu)", "control flow"],
    );
}

#[test]
fn attributes_are_numbers_short_texts_and_tensors() {
    let with = |attribute: AttributeProto| in_relu(|relu| relu.attribute.push(attribute));
    let strings = AttributeProto {
        strings: vec![Bytes::from_static(b"a")],
        ..int("words", 1)
    };
    refused(&with(strings), &["`words`", "`y`", "texts"]);
    let reference = AttributeProto {
        ref_attr_name: "outer".into(),
        ..int("alpha", 1)
    };
    refused(&with(reference), &["`alpha`", "function"]);
    let kind = AttributeProto {
        r#type: AttributeType::TypeProto.into(),
        ..int("alpha", 1)
    };
    refused(&with(kind), &["`alpha`", "kind"]);
    refused(&with(ints("long", &[0; 5000])), &["`long`", "too many numbers"]);
    refused(
        &with(text("long", &"a".repeat(2000))),
        &["`long`", "length limit"],
    );
    let twice = in_relu(|relu| relu.attribute.extend([int("a", 1), int("a", 2)]));
    refused(&twice, &["two attributes", "`a`"]);
    let mut lying = tensor("value", &noisy(1, &[2]));
    lying.t.as_mut().unwrap().dims = vec![1 << 40];
    refused(&with(lying), &["`value of node y`", "has an invalid size"]);
}

#[test]
fn weights_hold_what_they_claim() {
    for dims in [
        vec![2, 3, 3, 4],
        vec![1 << 40, 1 << 40],
        vec![i64::MAX, 2],
        vec![-1, 54],
        vec![-2, -27],
        vec![0],
        vec![],
    ] {
        let refusal = refused(
            &in_weight(|weight| weight.dims = dims),
            &["`k`", "has an invalid size"],
        );
        assert!(matches!(refusal, Inadmissible::WeightSize { .. }));
    }
    let typed = in_weight(|weight| {
        weight.raw_data.clear();
        weight.float_data = vec![1.0; 54];
    });
    admit(&typed).unwrap();
    for wrong in [
        in_weight(|weight| weight.float_data = vec![1.0; 54]),
        in_weight(|weight| weight.raw_data.clear()),
        in_weight(|weight| {
            weight.raw_data.clear();
            weight.int32_data = vec![1; 54];
        }),
        in_weight(|weight| weight.segment = Some(Bytes::new())),
        in_weight(|weight| weight.data_type = data_type::DOUBLE),
    ] {
        refused(&wrong, &["`k`", "has an invalid size"]);
    }
    refused(
        &in_weight(|weight| weight.dims = vec![1; 20]),
        &["`k`", "20 axes"],
    );
}

#[test]
fn tensors_hold_numbers() {
    for (code, word) in [(8, "texts"), (14, "complex"), (0, "untyped"), (23, "type 23")] {
        let refusal = refused(&in_weight(|weight| weight.data_type = code), &["`k`", word]);
        assert!(matches!(refusal, Inadmissible::ElementType { .. }));
        let end = in_graph(|graph| {
            let r#type = graph.input[0].r#type.as_mut().unwrap();
            r#type.tensor_type.as_mut().unwrap().elem_type = code;
        });
        refused(&end, &["`x`", word]);
    }
}

#[test]
fn no_other_file_is_asked_for() {
    for place in ["/etc/passwd", "../secret", "weights.bin", ""] {
        let proto = in_weight(|weight| {
            weight.raw_data.clear();
            weight.data_location = 1;
            weight.external_data.push(StringStringEntry {
                key: "location".into(),
                value: place.into(),
            });
        });
        let refusal = refused(&proto, &["`k`", place, "weights inside"]);
        assert!(matches!(refusal, Inadmissible::ExternalData { .. }));
    }
}

#[test]
fn names_are_short_distinct_and_printable() {
    let long = "n".repeat(2000);
    let renamed = |name: &str| in_relu(|relu| relu.name = name.into());
    let refusal = refused(&renamed(&long), &["2000 bytes", "1024"]);
    assert!(refusal.to_string().len() < 300);
    let refusal = refused(&renamed("a\nfake log line"), &["control characters"]);
    assert!(!refusal.to_string().contains('\n'));
    let twice = in_graph(|graph| graph.initializer.push(graph.initializer[0].clone()));
    refused(&twice, &["two weights", "`k`"]);
    let twice = in_graph(|graph| graph.input.push(graph.input[0].clone()));
    refused(&twice, &["two inputs", "`x`"]);
    refused(&in_weight(|weight| weight.name.clear()), &["missing"]);
}

#[test]
fn everything_is_counted() {
    let limits = |change: fn(&mut ModelLimits)| {
        let mut limits = ModelLimits::default();
        change(&mut limits);
        limits
    };
    refused_under(
        &small(),
        &limits(|limits| limits.nodes = 1),
        &["2 nodes", "at most 1"],
    );
    refused_under(
        &small(),
        &limits(|limits| limits.values = 1),
        &["2 values", "at most 1"],
    );
    refused_under(
        &small(),
        &limits(|limits| limits.weights = 0),
        &["1 weights", "at most 0"],
    );
    refused_under(
        &small(),
        &limits(|limits| limits.arguments = 1),
        &["`c`", "2 inputs"],
    );
    refused_under(
        &small(),
        &limits(|limits| limits.attributes = 0),
        &["`c`", "1 attributes"],
    );
    refused_under(
        &small(),
        &limits(|limits| limits.description_bytes = 1000),
        &["1000 bytes"],
    );
    let outputs = in_relu(|relu| relu.output.extend((0..600).map(|index| format!("o{index}"))));
    refused(&outputs, &["`y`", "601 outputs"]);
}

/// Small files that would need much memory after decoding.
#[test]
fn files_that_expand_are_refused_before_decoding() {
    let empty_nodes = in_graph(|graph| graph.node = vec![NodeProto::default(); 1_000_000]);
    refused(&empty_nodes, &["16385 nodes"]);
    let inputs = in_relu(|relu| relu.input = vec![String::new(); 4_000_000]);
    refused(&inputs, &["67108864 bytes"]);
    let numbers = in_weight(|weight| weight.int64_data = vec![1; 10_000_000]);
    refused(&numbers, &["67108864 bytes"]);
    let notes = in_graph(|graph| graph.value_info = vec![ValueInfo::default(); 1_000_000]);
    refused(&notes, &["67108864 bytes"]);
    let shapes = in_graph(|graph| graph.initializer[0].dims = vec![1; 10_000_000]);
    refused(&shapes, &["67108864 bytes"]);
    let imports = changed(|proto| proto.opset_import = vec![OperatorSetId::default(); 2_000_000]);
    refused(&imports, &["67108864 bytes"]);
}

#[test]
fn broken_files_are_no_models() {
    let whole = small().encode_to_vec();
    for length in 0..whole.len() {
        assert!(Model::admit(whole[..length].to_vec().into(), &ModelLimits::default()).is_err());
    }
    for bytes in [
        &b"\x0b\x0c"[..],
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"photo",
    ] {
        let error = Model::admit(bytes.to_vec().into(), &ModelLimits::default()).unwrap_err();
        assert!(matches!(error, GraphError::NotOnnx { .. }), "{error}");
    }
}

#[test]
fn chains_hold_together() {
    let cycle = in_relu(|relu| {
        relu.input = vec!["z".into()];
        relu.output = vec!["y".into()];
    });
    assert!(matches!(admit(&cycle), Err(GraphError::Malformed { .. })));
    let twice = in_graph(|graph| graph.node.push(graph.node[1].clone()));
    assert!(matches!(admit(&twice), Err(GraphError::Malformed { .. })));
    let shadowed = in_graph(|graph| graph.initializer.push(integers("c", &[1])));
    assert!(matches!(admit(&shadowed), Err(GraphError::Malformed { .. })));
}

mod needs_shared {
    use super::*;

    #[test]
    fn every_real_network_is_taken() {
        for name in [
            "alexnet",
            "resnet18",
            "resnet50",
            "densenet121",
            "vgg11",
            "vgg19",
            "vit_b_16",
        ] {
            for opset in ["opset17", "opset20"] {
                let empty = skeleton(&format!("{name}.{opset}"));
                let bytes: Bytes = filled(&empty).to_bytes().unwrap().into();
                let taken = Model::admit(bytes.clone(), &ModelLimits::default());
                let whole = Model::from_bytes(bytes).unwrap();
                assert_eq!(taken.unwrap(), whole, "{name}.{opset}");
                // Trainers upload the layers up to the freeze cut.
                let cuts = whole.network().unwrap().cuts;
                let freeze = cuts.iter().rfind(|cut| cut.before_head).unwrap();
                let prefix = whole.slice(None, Some(&freeze.name)).unwrap().to_bytes().unwrap();
                Model::admit(prefix.into(), &ModelLimits::default()).unwrap();
            }
        }
        for file in ["squeezenet1_1.onnx", "squeezenet1_1_pooled.onnx"] {
            let bytes = std::fs::read(frostline_needs::shared_file(&format!("data/{file}"))).unwrap();
            Model::admit(bytes.into(), &ModelLimits::default()).unwrap();
        }
    }
}
