//! SqueezeNet 1.1 on real photos, if available.

use crate::harness::{Scratch, events, frostline, series};
use frostline_e2e::{finish, repository};
use frostline_needs::shared_file;
use serde_json::Value;
use std::process::Command;

/// Required validation accuracy. The NumPy reference reaches 0.69 on pooled features.
const REQUIRED_ACCURACY: f64 = 0.66;
/// Maximum number of validation photos (of 120) with a different class in Python.
const PHOTOS_THAT_MAY_DIFFER: f64 = 2.0;

fn reaches_the_reference(model: &str, freeze: &str) {
    let (model, data) = (
        shared_file(&format!("data/{model}")),
        shared_file("data/clothing"),
    );
    let scratch = Scratch::new();
    let (model, data) = (model.to_str().unwrap(), data.to_str().unwrap());
    // With cached features, as by default, the frozen layers run once per photo.
    let mut train = scratch.train_command(&[
        "--model",
        model,
        "--data",
        data,
        "--freeze",
        freeze,
        "--epochs",
        "20",
        "--batch",
        "64",
        "--feature-cache",
        "1GiB",
    ]);
    let run = finish(train.env("FROSTLINE_FEATURE_FOLDER", scratch.path("features"))).unwrap();
    let accuracy = events(&run).last().unwrap()["validation_accuracy"]
        .as_f64()
        .unwrap();
    eprintln!("{model} frozen at {freeze}: {accuracy}");
    assert!(accuracy >= REQUIRED_ACCURACY, "{accuracy}");
    let out = scratch.path("tuned.onnx");
    let run = finish(
        Command::new("python3")
            .arg(repository().join("models/zoo/evaluate.py"))
            .arg("--model")
            .arg(&out)
            .arg("--data")
            .arg(data),
    )
    .unwrap();
    let python: Value =
        serde_json::from_str(run.stdout.lines().last().unwrap_or_default()).expect(&run.stderr);
    let differs = (python["accuracy"].as_f64().unwrap() - accuracy).abs() * 120.0;
    assert!(
        differs < PHOTOS_THAT_MAY_DIFFER + 0.5,
        "Python {python}, ours {accuracy}"
    );
    let run = finish(
        frostline()
            .args(["eval", "--json", "--model"])
            .arg(&out)
            .args(["--data", data]),
    )
    .unwrap();
    let evaluated: Value = serde_json::from_str(&run.stdout).expect(&run.stderr);
    assert_eq!(evaluated["accuracy"].as_f64(), Some(accuracy));
}

mod needs_shared {
    use super::*;

    #[test]
    fn pooled_squeezenet_reaches_the_reference() {
        reaches_the_reference("squeezenet1_1_pooled.onnx", "features");
    }

    #[test]
    fn squeezenet_with_its_convolution_as_head_reaches_the_reference() {
        reaches_the_reference("squeezenet1_1.onnx", "52");
    }

    #[test]
    fn the_split_does_not_change_the_loss() {
        let (model, data) = (
            shared_file("data/squeezenet1_1_pooled.onnx"),
            shared_file("data/clothing"),
        );
        let scratch = Scratch::new();
        let losses = |split: &str| {
            let (model, data) = (model.to_str().unwrap(), data.to_str().unwrap());
            series(
                &events(&scratch.train(&[
                    "--model", model, "--data", data, "--split", split, "--batch", "64",
                ])),
                "step",
                "loss",
            )
        };
        let reference = losses("features");
        assert_eq!(reference.len(), 7);
        for split in ["none", "input", "21", "52"] {
            for (step, (loss, reference)) in losses(split).iter().zip(&reference).enumerate() {
                assert!(
                    (loss - reference).abs() < 1e-4,
                    "split {split}, step {step}: {loss} against {reference}"
                );
            }
        }
    }
}
