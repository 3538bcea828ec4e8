//! Models, cuts and guests that cannot be used.

use crate::harness::{Scratch, demo, frostline, guest};
use frostline_e2e::finish;
use frostline_graph::build::{Axis, batched, model, node, value};
use frostline_graph::onnx::{GraphProto, ModelProto, NodeProto, ValueInfo, data_type};
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
        &["stagee", "the rules are auto"],
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
        let file = guest("trap");
        let scratch = Scratch::with_photos(4, 2);
        scratch.assert_failed(
            &scratch.train(&["--guest", file.to_str().unwrap(), "--split", "features"]),
            &["trap"],
        );
    }

    #[test]
    fn a_guest_of_another_world_is_refused() {
        let file = guest("other-world");
        let scratch = Scratch::with_photos(4, 2);
        scratch.assert_failed(
            &scratch.train(&["--guest", file.to_str().unwrap()]),
            &["other-world", "frozen-prefix"],
        );
    }

    #[test]
    fn a_split_the_guest_rules_out_is_refused() {
        let file = guest("refuse-split");
        let scratch = Scratch::with_photos(4, 2);
        let split = first_cut();
        scratch.assert_failed(
            &scratch.train(&["--guest", file.to_str().unwrap(), "--split", &split]),
            &[&split, "refuse_split", "the cuts it serves are"],
        );
    }
}
