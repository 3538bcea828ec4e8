//! The main job on the bundled demo.

use crate::harness::{Scratch, demo, events, frostline, series, sorted};
use frostline_e2e::{finish, repository};
use frostline_graph::Model;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn every_split_trains_with_the_same_losses() {
    let scratch = Scratch::with_photos(10, 4);
    let cuts = inner_cuts();
    let mut splits = vec!["none", "input", "features"];
    splits.extend(cuts.iter().map(String::as_str));
    let losses = |split: &str| {
        series(
            &events(&scratch.train(&["--split", split, "--epochs", "2"])),
            "step",
            "loss",
        )
    };
    let reference = losses("features");
    // 30 photos in batches of 8. The last batch of an epoch is smaller.
    assert_eq!(reference.len(), 8);
    for split in splits {
        for (step, (loss, reference)) in losses(split).iter().zip(&reference).enumerate() {
            assert!(
                (loss - reference).abs() < 1e-4,
                "split {split}, step {step}: {loss} against {reference}"
            );
        }
    }
}

/// Returns two inner cuts of the bundled backbone.
fn inner_cuts() -> Vec<String> {
    let run = finish(
        frostline()
            .args(["model", "show", "--json"])
            .arg(demo("backbone.onnx")),
    )
    .unwrap();
    let shown: Value = serde_json::from_str(&run.stdout).unwrap();
    let cuts = shown["cuts"].as_array().unwrap();
    let features = cuts.iter().position(|cut| cut["name"] == "features").unwrap();
    [features / 3, 2 * features / 3]
        .map(|index| cuts[index]["name"].as_str().unwrap().to_owned())
        .to_vec()
}

#[test]
fn training_learns_and_reports_what_scripts_read() {
    let scratch = Scratch::with_photos(16, 8);
    let events = events(&scratch.train(&["--epochs", "8", "--optimizer", "adamw", "--lr", "0.005"]));
    let epochs = series(&events, "epoch", "loss");
    assert_eq!(epochs.len(), 8);
    assert!(epochs[7] < epochs[0] * 0.7, "{epochs:?}");
    let accuracy = series(&events, "epoch", "validation_accuracy");
    assert!(accuracy[7] > 0.5, "three classes, {accuracy:?}");
    let host_time: Vec<_> = events
        .iter()
        .filter(|event| event["event"] == "host_time")
        .collect();
    assert_eq!(host_time.len(), 1, "one host");
    assert!(
        host_time[0]["seconds"]["read"].as_f64().unwrap() > 0.0,
        "{host_time:?}"
    );
    let done = events.last().unwrap();
    assert_eq!(done["event"], "done");
    assert_eq!(done["validation_accuracy"].as_f64().unwrap(), accuracy[7]);
    let in_epochs: f64 = series(&events, "epoch", "bytes_received").iter().sum();
    assert!(done["bytes_received"].as_f64().unwrap() >= in_epochs);
    assert!(std::path::Path::new(done["model"].as_str().unwrap()).is_file());
}

#[test]
fn a_model_with_external_weights_is_trained_and_uploaded() {
    let scratch = Scratch::with_photos(6, 2);
    let model = scratch.path("beside.onnx");
    let whole = Model::read(demo("backbone.onnx")).unwrap();
    whole.stage(&model, 1000).unwrap().commit().unwrap();
    let files = sorted(model.parent().unwrap());
    let is_beside = |file: &PathBuf| file.to_string_lossy().contains("beside.onnx.");
    assert!(files.iter().any(is_beside), "{files:?}");
    let run = |flags: &[&str]| events(&scratch.train(&[&["--split", "features"], flags].concat()));
    let (inside, beside) = (run(&[]), run(&["--model", model.to_str().unwrap()]));
    assert_eq!(series(&inside, "step", "loss"), series(&beside, "step", "loss"));
    let uploaded = |events: &[Value]| series(events, "upload", "bytes");
    assert_eq!(uploaded(&inside), uploaded(&beside));
}

/// Returns the first event of this kind.
fn first_event<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    events.iter().find(|event| event["event"] == kind).unwrap()
}

#[test]
fn one_root_is_divided_by_a_fraction() {
    let scratch = Scratch::with_photos(10, 0);
    let root = scratch.path("photos/train");
    let events = events(&scratch.train(&["--data", root.to_str().unwrap(), "--validation", "0.2"]));
    let dataset = first_event(&events, "dataset");
    assert_eq!(
        (dataset["train"].as_u64(), dataset["validation"].as_u64()),
        (Some(24), Some(6)),
        "{dataset}"
    );
}

#[test]
fn eval_and_python_agree_with_training() {
    let scratch = Scratch::with_photos(12, 8);
    let events = events(&scratch.train(&["--epochs", "3"]));
    let trained = events.last().unwrap()["validation_accuracy"].as_f64().unwrap();
    let (model, data) = (scratch.path("tuned.onnx"), scratch.path("photos"));
    let run = finish(
        frostline()
            .args(["eval", "--json", "--model"])
            .arg(&model)
            .arg("--data")
            .arg(&data),
    )
    .unwrap();
    let evaluated: Value = serde_json::from_str(&run.stdout).expect(&run.stderr);
    assert_eq!(evaluated["accuracy"].as_f64(), Some(trained));
    assert_eq!(evaluated["samples"].as_u64(), Some(24));
    let script = repository().join("models/zoo/evaluate.py");
    let run = finish(
        Command::new("python3")
            .arg(script)
            .arg("--model")
            .arg(&model)
            .arg("--data")
            .arg(&data),
    )
    .unwrap();
    let python: Value =
        serde_json::from_str(run.stdout.lines().last().unwrap_or_default()).expect(&run.stderr);
    let differs = (python["accuracy"].as_f64().unwrap() - trained).abs() * 24.0;
    assert!(differs < 1.5, "Python: {python}, ours: {trained}");
}

#[test]
fn pushing_down_sends_fewer_bytes() {
    let scratch = Scratch::with_photos(10, 4);
    let bytes = |split: &str| {
        series(
            &events(&scratch.train(&["--split", split])),
            "epoch",
            "bytes_received",
        )[0]
    };
    assert!(bytes("features") * 4.0 < bytes("none"));
}

/// Writes a label table with a row for each photo. `row` maps the index of a class to the values.
fn label(scratch: &Scratch, file: &Path, columns: &str, row: fn(usize) -> &'static str) {
    let photos = scratch.path("photos");
    let mut table = format!("\u{feff}file,{columns}\r\n");
    for part in ["train", "validation"] {
        for (class, folder) in sorted(&photos.join(part)).iter().enumerate() {
            for photo in sorted(folder) {
                let key = photo.strip_prefix(&photos).unwrap().to_str().unwrap();
                table += &format!("\"{key}\",{}\r\n", row(class));
            }
        }
    }
    std::fs::write(file, table).unwrap();
}

fn evaluate(scratch: &Scratch, flags: &[&str]) -> Value {
    let mut command = frostline();
    command
        .args(["eval", "--json", "--model"])
        .arg(scratch.path("tuned.onnx"));
    let run = finish(command.arg("--data").arg(scratch.path("photos")).args(flags)).unwrap();
    serde_json::from_str(&run.stdout).expect(&run.stderr)
}

#[test]
fn several_labels_come_from_a_table_beside_the_photos() {
    let scratch = Scratch::with_photos(12, 6);
    let table = scratch.path("photos/labels.csv");
    label(&scratch, &table, "first,not second", |class| {
        ["1,1", "0,0", "0,1"][class % 3]
    });
    let refused = scratch.train(&[]);
    scratch.assert_failed(&refused, &["labels.csv", "line 1", "labels or numbers"]);
    let events = events(&scratch.train(&[
        "--loss",
        "bce",
        "--epochs",
        "6",
        "--optimizer",
        "adamw",
        "--lr",
        "0.005",
    ]));
    let dataset = first_event(&events, "dataset");
    assert_eq!(dataset["task"], "labels");
    assert_eq!(dataset["classes"], serde_json::json!(["first", "not second"]));
    let precision = series(&events, "epoch", "validation_mean_average_precision");
    let before = series(&events, "baseline", "validation_mean_average_precision")[0];
    assert!(precision[5] > before.max(0.6), "{before}, then {precision:?}");
    let evaluated = evaluate(&scratch, &[]);
    assert_eq!(evaluated["mean_average_precision"].as_f64(), Some(precision[5]));
    assert_eq!(evaluated["samples"].as_u64(), Some(18));
}

#[test]
fn numbers_come_from_a_local_table() {
    let scratch = Scratch::with_photos(12, 6);
    let table = scratch.path("lengths.csv");
    label(&scratch, &table, "length", |class| {
        ["-0.5", "0.25", "1"][class % 3]
    });
    let table = table.to_str().unwrap();
    let flags = [
        "--loss",
        "mse",
        "--labels",
        table,
        "--epochs",
        "6",
        "--optimizer",
        "adamw",
        "--lr",
        "0.005",
    ];
    let events = events(&scratch.train(&flags));
    let (before, errors) = (
        series(&events, "baseline", "validation_rmse")[0],
        series(&events, "epoch", "validation_rmse"),
    );
    assert!(errors[5] < before, "{before}, then {errors:?}");
    let evaluated = evaluate(&scratch, &["--labels", table]);
    // Evaluates the best epoch's model. Batches differ, so sums are rounded differently.
    let rmse = evaluated["rmse"].as_f64().unwrap();
    let best = errors.iter().copied().fold(f64::INFINITY, f64::min);
    assert!((rmse - best).abs() < 1e-6, "{rmse}, {errors:?}");
}

#[test]
fn a_classifier_of_standardized_features_takes_them_as_they_come() {
    let scratch = Scratch::with_photos(12, 6);
    let events = events(&scratch.train(&["--standardize", "--epochs", "3"]));
    let trained = events.last().unwrap()["validation_accuracy"].as_f64();
    assert_eq!(evaluate(&scratch, &[])["accuracy"].as_f64(), trained);
}

mod long {
    use super::*;

    /// f16 has a precision of 11 bits, so activations have relative errors of up to 1 in 2,048, and losses
    /// have similar errors. int8 has 8 bits.
    #[test]
    fn narrow_encodings_stay_within_their_tolerance_and_send_less() {
        let scratch = Scratch::with_photos(10, 4);
        let middle = inner_cuts().remove(1);
        for split in [middle.as_str(), "features"] {
            let run = |encoding: &str| {
                let run =
                    events(&scratch.train(&["--split", split, "--epochs", "2", "--encoding", encoding]));
                let chosen = run.iter().find(|event| event["event"] == "split").unwrap();
                assert_eq!(chosen["encoding"], encoding);
                (
                    series(&run, "step", "loss"),
                    series(&run, "epoch", "bytes_received")[0],
                )
            };
            let (reference, whole) = run("f32");
            for (encoding, tolerance, share) in [
                ("f32+zstd", 0.0, 1.05),
                ("f16", 2e-3, 0.75),
                ("f16+lz4", 2e-3, 0.75),
                ("int8", 3e-2, 0.7),
            ] {
                let (losses, bytes) = run(encoding);
                assert_eq!(losses.len(), reference.len());
                for (step, (loss, reference)) in losses.iter().zip(&reference).enumerate() {
                    assert!(
                        (loss - reference).abs() <= tolerance,
                        "{split} as {encoding}, step {step}: {loss} against {reference}"
                    );
                }
                assert!(
                    bytes < whole * share,
                    "{split} as {encoding}: {bytes} of {whole} bytes"
                );
            }
        }
    }

    #[test]
    fn the_split_follows_a_later_unfreeze() {
        let scratch = Scratch::with_photos(10, 4);
        let cut = inner_cuts().remove(1);
        let unfreeze = format!("2={cut}");
        let run = |split: &str| {
            let flags = ["--split", split, "--epochs", "2", "--unfreeze", &unfreeze];
            events(&scratch.train(&flags))
        };
        let (reference, pushed) = (run("none"), run("freeze"));
        let losses = |events: &[Value]| series(events, "step", "loss");
        for (step, (loss, reference)) in losses(&pushed).iter().zip(losses(&reference)).enumerate() {
            assert!(
                (loss - reference).abs() < 1e-4,
                "step {step}: {loss} against {reference}"
            );
        }
        let at = pushed
            .iter()
            .position(|event| event["event"] == "unfreeze")
            .unwrap();
        assert_eq!(
            (&pushed[at]["epoch"], &pushed[at]["freeze"]),
            (&2.into(), &cut.clone().into())
        );
        let steps = pushed[at..].iter().filter(|event| event["event"] == "step");
        assert!(steps.clone().count() == 4 && steps.clone().all(|event| event["split"] == cut.as_str()));
        let refused = scratch.train(&[
            "--split",
            "features",
            "--unfreeze",
            &unfreeze,
            "--out",
            "never.onnx",
        ]);
        assert!(
            refused.failure().unwrap()["error"]
                .as_str()
                .unwrap()
                .contains(&cut)
        );
    }

    #[test]
    fn with_nothing_frozen_the_whole_network_is_trained_and_hosts_only_decode() {
        let scratch = Scratch::with_photos(10, 4);
        let refused = scratch.train(&["--freeze", "none", "--split", "features"]);
        scratch.assert_failed(&refused, &["features", "none", "input"]);
        let train =
            |split: &str| events(&scratch.train(&["--freeze", "none", "--split", split, "--epochs", "2"]));
        let losses = |split: &str| series(&train(split), "step", "loss");
        let reference = losses("none");
        assert_eq!(reference.len(), 8);
        for split in ["input", "auto"] {
            for (step, (loss, reference)) in losses(split).iter().zip(&reference).enumerate() {
                assert!(
                    (loss - reference).abs() < 1e-4,
                    "split {split}, step {step}: {loss} against {reference}"
                );
            }
        }
        let first = |path: &Path| Model::read(path).unwrap().parameters()[0].clone();
        let (before, after) = (first(&demo("backbone.onnx")), first(&scratch.path("tuned.onnx")));
        assert_eq!(before.dims, after.dims);
        assert_ne!(before.raw_data, after.raw_data);
    }

    #[test]
    fn the_same_seed_gives_the_same_losses() {
        let scratch = Scratch::with_photos(8, 2);
        // Fix the split, because a planned split and the encoding may differ between runs.
        let job = |seed: &str| scratch.train(&["--seed", seed, "--split", "features"]);
        let losses = |seed: &str| series(&events(&job(seed)), "step", "loss");
        assert_eq!(losses("7"), losses("7"));
        assert_ne!(losses("7"), losses("8"));
    }

    #[test]
    fn a_plan_needs_no_validation_images() {
        let scratch = Scratch::with_photos(4, 2);
        let mut command = frostline();
        command.args([
            "--json",
            "plan",
            "--model",
            demo("backbone.onnx").to_str().unwrap(),
        ]);
        command.args(["--freeze", "features", "--batch", "8"]);
        command.args(["--data", scratch.path("photos/train").to_str().unwrap()]);
        let planned = finish(&mut command).unwrap();
        assert_eq!(planned.code, Some(0), "{planned:?}");
        assert!(
            planned.stderr.contains("a validation share of 0.2"),
            "{}",
            planned.stderr
        );
        let plan: Value = serde_json::from_str(planned.stdout.lines().last().unwrap()).unwrap();
        // There are three classes with four photos each. One photo per class is used for validation.
        assert_eq!(
            (&plan["batch"], &plan["epoch_iterations"]),
            (&Value::from(8), &Value::from(2))
        );
    }
}
