//! Invalid models, cuts and guests.

use crate::harness::{Scratch, demo, frostline};
use frostline_e2e::finish;
use frostline_graph::build::{Axis, batched, model, node, value};
use frostline_graph::onnx::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfo, data_type};
use frostline_needs::built_guest;
use prost::Message;
use std::fs;

#[test]
fn an_unknown_cut_is_named() {
    let scratch = Scratch::with_photos(4, 2);
    scratch.assert_failed(
        &scratch.train(&["--freeze", "featurez"]),
        &["featurez", "features"],
    );
    scratch.assert_failed(
        &scratch.train(&["--freeze", "Features"]),
        &["did you mean `features`?"],
    );
    scratch.assert_failed(
        &scratch.train(&["--split", "stagee"]),
        &["stagee", "available rules: auto"],
    );
    scratch.assert_failed(&scratch.train(&["--split", "Auto"]), &["did you mean auto"]);
}

#[test]
fn a_split_after_the_freeze_cut_is_refused() {
    let scratch = Scratch::with_photos(4, 2);
    let first = first_cut();
    scratch.assert_failed(
        &scratch.train(&["--freeze", &first, "--split", "features"]),
        &["features", &first],
    );
}

fn first_cut() -> String {
    let run = finish(
        frostline()
            .args(["model", "show", "--json"])
            .arg(demo("backbone.onnx")),
    )
    .unwrap();
    let shown: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    shown["cuts"][0]["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_freeze_cut_after_the_head_is_refused() {
    let scratch = Scratch::with_photos(4, 2);
    let run = finish(
        frostline()
            .args(["model", "show", "--json"])
            .arg(demo("backbone.onnx")),
    )
    .unwrap();
    let shown: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let last = shown["cuts"].as_array().unwrap().last().unwrap()["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let freeze = if last == "features" { output_name() } else { last };
    scratch.assert_failed(&scratch.train(&["--freeze", &freeze]), &[&freeze, "classifier"]);
}

fn output_name() -> String {
    let model = frostline_graph::Model::read(demo("backbone.onnx")).unwrap();
    model.network().unwrap().output.name
}

#[test]
fn a_file_that_is_no_onnx_is_refused() {
    let scratch = Scratch::with_photos(4, 2);
    let file = scratch.path("model.onnx");
    for bytes in [&b"not a model at all"[..], b"", &[0x08, 0x07]] {
        fs::write(&file, bytes).unwrap();
        scratch.assert_failed(
            &scratch.train(&["--model", file.to_str().unwrap()]),
            &["model.onnx"],
        );
    }
    scratch.assert_failed(&scratch.train(&["--model", "nowhere.onnx"]), &["nowhere.onnx"]);
}

#[test]
fn a_guest_that_is_no_component_is_refused() {
    let scratch = Scratch::with_photos(4, 2);
    let file = scratch.path("guest.wasm");
    fs::write(&file, b"#!/bin/sh\necho hello\n").unwrap();
    scratch.assert_failed(
        &scratch.train(&["--guest", file.to_str().unwrap(), "--split", "features"]),
        &["guest"],
    );
}

#[test]
fn an_unknown_device_is_an_error() {
    let scratch = Scratch::with_photos(4, 2);
    scratch.assert_failed(&scratch.train(&["--device", "tpu"]), &["tpu", "cpu"]);
}

#[test]
fn a_model_with_two_inputs_is_refused() {
    let inputs = vec![batched("left", &[3, 8, 8]), batched("right", &[3, 8, 8])];
    refused(
        network(vec![node("Add", &["left", "right"], &["sum"])], inputs, "sum"),
        &["left", "right"],
    );
}

#[test]
fn a_model_with_a_batch_baked_in_is_refused() {
    let eight = [8, 3, 8, 8].map(Axis::Fixed);
    refused(
        network(
            vec![node("Relu", &["x"], &["y"])],
            vec![value("x", data_type::FLOAT, &eight)],
            "y",
        ),
        &["8"],
    );
}

#[test]
fn untrainable_layers_are_reported_without_a_host_and_with_a_valid_cut() {
    let weight = |name: &str, dims: [usize; 2]| TensorProto {
        name: name.to_owned(),
        data_type: data_type::FLOAT,
        dims: dims.map(|dim| dim as i64).into(),
        float_data: vec![0.1; dims.iter().product()],
        ..TensorProto::default()
    };
    let graph = GraphProto {
        node: vec![
            node("Relu", &["x"], &["start"]),
            node("Flatten", &["start"], &["flat"]),
            node("MatMul", &["flat", "first"], &["hidden"]),
            node("Tan", &["hidden"], &["bent"]).named("/body/bend/Tan"),
            node("Relu", &["bent"], &["features"]).named("/body/relu/Relu"),
            node("MatMul", &["features", "head"], &["logits"]).named("/fc/MatMul"),
        ],
        initializer: vec![weight("first", [192, 4]), weight("head", [4, 3])],
        input: vec![batched("x", &[3, 8, 8])],
        output: vec![batched("logits", &[3])],
        ..GraphProto::default()
    };
    let scratch = Scratch::with_photos(4, 2);
    let file = scratch.path("model.onnx");
    fs::write(&file, model(17, graph).encode_to_vec()).unwrap();
    let flags = ["--model", file.to_str().unwrap(), "--freeze", "start"];
    // No host listens at this address.
    let token = scratch.path("token");
    fs::write(&token, "never asked for").unwrap();
    let nowhere = [
        "--host",
        "http://127.0.0.1:9",
        "--token-file",
        token.to_str().unwrap(),
    ];
    scratch.assert_failed(
        &scratch.train(&[&flags[..], &nowhere].concat()),
        &[
            "`start`",
            "operator Tan",
            "of module 'body.bend'",
            "`hidden` is the earliest freeze cut that works",
        ],
    );
    let run = finish(frostline().args(["model", "show", "--json"]).arg(&file)).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let cuts = shown["cuts"].as_array().unwrap().iter();
    let cuts: Vec<_> = cuts
        .map(|cut| {
            (
                cut["name"].as_str().unwrap(),
                cut["module"].as_str(),
                cut["trainable"].as_bool(),
            )
        })
        .collect();
    let expected = [
        ("start", None, Some(false)),
        ("flat", None, Some(false)),
        ("hidden", None, Some(true)),
        ("bent", Some("body.bend"), Some(true)),
        ("features", Some("body"), Some(true)),
        ("logits", Some("fc"), Some(false)),
    ];
    assert_eq!(cuts, expected);
}

fn network(nodes: Vec<NodeProto>, inputs: Vec<ValueInfo>, output: &str) -> ModelProto {
    let graph = GraphProto {
        name: "bad".to_owned(),
        node: nodes,
        input: inputs,
        output: vec![batched(output, &[3, 8, 8])],
        ..GraphProto::default()
    };
    model(17, graph)
}

fn refused(network: ModelProto, words: &[&str]) {
    let scratch = Scratch::with_photos(4, 2);
    let file = scratch.path("model.onnx");
    fs::write(&file, network.encode_to_vec()).unwrap();
    scratch.assert_failed(
        &scratch.train(&["--model", file.to_str().unwrap(), "--freeze", "x"]),
        words,
    );
}

mod needs_guests {
    use super::*;

    #[test]
    fn a_guest_that_traps_fails_clearly() {
        let file = built_guest("trap");
        let scratch = Scratch::with_photos(4, 2);
        scratch.assert_failed(
            &scratch.train(&["--guest", file.to_str().unwrap(), "--split", "features"]),
            &["trap"],
        );
    }

    #[test]
    fn a_guest_of_another_world_is_refused() {
        let file = built_guest("other-world");
        let scratch = Scratch::with_photos(4, 2);
        scratch.assert_failed(
            &scratch.train(&["--guest", file.to_str().unwrap()]),
            &["other-world", "frozen-prefix"],
        );
    }

    #[test]
    fn a_split_the_guest_rules_out_is_refused() {
        let file = built_guest("refuse-split");
        let scratch = Scratch::with_photos(4, 2);
        let split = first_cut();
        scratch.assert_failed(
            &scratch.train(&["--guest", file.to_str().unwrap(), "--split", &split]),
            &[&split, "refuse_split", "the guest serves the cuts"],
        );
    }
}
