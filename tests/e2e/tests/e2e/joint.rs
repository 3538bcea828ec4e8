//! Jobs whose freeze cut is crossed by several tensors.

use crate::harness::{Scratch, demo, events, frostline, series, sorted};
use crate::several_hosts::{host_flags, start_hosts};
use frostline_e2e::finish;
use frostline_graph::Model;
use frostline_graph::build::{initializer, node};
use frostline_tensor::Tensor;
use serde_json::Value;
use std::fs;

const CUT: &str = "stage3.0,features";

/// Weights of the layer between the skip connection and the classifier.
const LATERAL: &str = "lateral.weight";

/// Writes the bundled backbone to a file, with a skip connection from `stage3.0` to the classifier, and returns the
/// path. A trained layer adds the pooled tensor to `features`.
fn with_skip(scratch: &Scratch) -> String {
    let whole = Model::read(demo("backbone.onnx")).unwrap();
    let mut graph = whole.graph().clone();
    let mut classifier = graph.node.pop().unwrap();
    classifier.input[0] = "merged".into();
    graph.node.extend([
        node("GlobalAveragePool", &["stage3.0"], &["skipped"]),
        node("Flatten", &["skipped"], &["flat"]),
        node("Gemm", &["flat", LATERAL], &["lateral"]),
        node("Add", &["features", "lateral"], &["merged"]),
        classifier,
    ]);
    let values = (0..64 * 128).map(|number| ((number * 37 % 101) as f32 - 50.0) / 500.0);
    let weight = Tensor::f32(vec![64, 128], values.collect()).unwrap();
    graph.initializer.push(initializer(LATERAL, &weight));
    let file = scratch.path("skip.onnx");
    whole.with_graph(graph).unwrap().write(&file).unwrap();
    file.to_str().unwrap().to_owned()
}

fn losses(events: &[Value]) -> Vec<f64> {
    series(events, "step", "loss")
}

#[test]
fn tensors_of_several_layers_cross_the_cut_on_hosts_and_in_the_cache() {
    let scratch = Scratch::with_photos(6, 2);
    let model = with_skip(&scratch);
    let hosts = start_hosts(&scratch, 2);
    let reach = host_flags(&hosts);
    let reach: Vec<&str> = reach.iter().map(String::as_str).collect();
    let features = scratch.path("kept").to_str().unwrap().to_owned();
    let kept = ["--feature-cache", "64MiB", "--feature-folder", &features];
    let common = [
        "--model", &model, "--freeze", CUT, "--lr", "0.05", "--epochs", "3",
    ];
    let local = events(&scratch.train(&[&common[..], &["--split", "none"]].concat()));
    for split in ["freeze", "stage3.0", "stem"] {
        let remote = events(&scratch.train(&[&common[..], &kept, &reach, &["--split", split]].concat()));
        let pairs = losses(&remote).into_iter().zip(losses(&local));
        assert!(pairs.clone().count() > 6);
        for (ours, theirs) in pairs {
            assert!((ours - theirs).abs() < 1e-4, "{ours} {theirs}");
        }
        assert_eq!(series(&remote, "epoch", "fetched_rows")[1..], [0.0, 0.0]);
        fs::remove_dir_all(&features).unwrap();
    }
}

#[test]
fn the_tuned_model_is_the_original_network_with_other_weights() {
    let scratch = Scratch::with_photos(6, 2);
    let model = with_skip(&scratch);
    let job = [
        "--model",
        &model,
        "--freeze",
        CUT,
        "--lr-scheduler",
        "constant",
        "--warmup-ratio",
        "0",
        "--epochs",
    ];
    let whole = events(&scratch.train(&[&job[..], &["4"]].concat()));
    let tuned = Model::read(scratch.path("tuned.onnx")).unwrap();
    let original = Model::read(&model).unwrap();
    let operators = |model: &Model| {
        model
            .nodes()
            .iter()
            .map(|node| node.op_type.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(operators(&tuned), operators(&original));
    let inputs = |model: &Model| model.inputs().map(|input| input.name.clone()).collect::<Vec<_>>();
    assert_eq!(inputs(&tuned), inputs(&original));
    let differ = |name: &str| tuned.weight(name).unwrap() != original.weight(name).unwrap();
    assert!(differ(LATERAL) && !differ("onnx::Conv_161"));
    let said = |arguments: &[&str]| {
        let mut command = frostline();
        command
            .args(arguments)
            .arg("--model")
            .arg(scratch.path("tuned.onnx"));
        events(&finish(&mut command).unwrap())
    };
    let photos = scratch.path("photos").to_str().unwrap().to_owned();
    let evaluated = said(&["eval", "--json", "--data", &photos]);
    let best = evaluated[0]["accuracy"].as_f64().unwrap();
    let accuracies = series(&whole, "epoch", "validation_accuracy");
    assert!(
        accuracies.iter().any(|accuracy| (accuracy - best).abs() < 1e-6),
        "{best} {accuracies:?}"
    );
    assert_eq!(said(&["predict", "--json", &photos]).len(), 24);
    fs::remove_dir_all(scratch.path("runs")).unwrap();
    scratch.train(&[&job[..], &["2"]].concat());
    let [run] = &sorted(&scratch.path("runs"))[..] else {
        panic!("more than one run");
    };
    let mut command = frostline();
    command
        .args(["train", "--json", "--epochs", "4", "--resume"])
        .arg(run);
    let rest = losses(&events(&finish(&mut command).unwrap()));
    assert!(!rest.is_empty());
    assert_eq!(rest, losses(&whole)[losses(&whole).len() - rest.len()..]);
}

#[test]
fn missing_tensors_are_named_and_complete_the_cut() {
    let scratch = Scratch::with_photos(3, 2);
    let model = with_skip(&scratch);
    let train = |freeze: &str| scratch.train(&["--model", &model, "--freeze", freeze, "--split", "none"]);
    let refused = train("mix,features");
    scratch.assert_failed(&refused, &["no cut through mix, features", "add `skipped`"]);
    events(&train("mix, features, skipped"));
}
