//! Sweeps whose variants use the features cached by the first.

use crate::harness::{Scratch, demo, events, series};
use frostline_e2e::finish;
use frostline_graph::Model;
use serde_json::Value;
use std::fs;

#[test]
fn a_sweep_runs_the_frozen_layers_once_and_writes_the_best_model() {
    let scratch = Scratch::with_photos(10, 4);
    let kept = scratch.path("kept");
    let mut command = scratch.train_command(&[
        "--epochs",
        "2",
        "--sweep",
        "lr=0.05,1e-7",
        "--sweep",
        "seed=0,1",
        "--feature-cache",
        "64MiB",
        "--feature-folder",
        kept.to_str().unwrap(),
        "--encoding",
        "f32",
    ]);
    let told = events(&finish(&mut command).unwrap());
    let of = |kind: &str| -> Vec<&Value> { told.iter().filter(|event| event["event"] == kind).collect() };
    let names: Vec<&str> = of("variant")
        .iter()
        .map(|one| one["variant"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "lr=0.05,seed=0",
            "lr=0.05,seed=1",
            "lr=1e-7,seed=0",
            "lr=1e-7,seed=1"
        ]
    );
    // The 30 training images are fetched once. The 12 validation images are fetched earlier.
    let fetched = series(&told, "epoch", "fetched_rows").into_iter().sum::<f64>();
    assert_eq!(fetched, 30.0);
    let sweep = of("sweep")[0];
    assert_eq!(sweep["variants"].as_array().unwrap().len(), 4);
    let score = |row: &Value| row["accuracy"].as_f64().unwrap();
    let rows = sweep["variants"].as_array().unwrap();
    let best = rows.iter().find(|row| row["variant"] == sweep["best"]).unwrap();
    assert!(rows.iter().all(|row| score(row) <= score(best)));
    let report = fs::read_to_string(sweep["report"].as_str().unwrap()).unwrap();
    assert!(names.iter().all(|name| report.contains(name)));
    let own = Model::read(std::path::Path::new(best["run"].as_str().unwrap()).join("tuned.onnx")).unwrap();
    assert_eq!(Model::read(scratch.path("tuned.onnx")).unwrap(), own);
    assert_ne!(own, Model::read(demo("backbone.onnx")).unwrap());
}
