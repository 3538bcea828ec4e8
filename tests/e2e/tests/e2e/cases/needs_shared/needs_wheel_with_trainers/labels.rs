//! Parts, classes and labels of the data, and images that a network was trained on before.

use super::case::Case;
use frostline_e2e::{Finished, repository};

#[test]
fn parts_in_capitals_nested_or_called_dev_never_lead_to_a_wrong_job() {
    let case = Case::generate("04-capital-parts");
    let backbone = repository().join("models/zoo/demo/backbone.onnx");
    let train = |data: &str, more: &[&str]| {
        let job = [
            "train",
            "--json",
            "--model",
            backbone.to_str().unwrap(),
            "--data",
            data,
        ];
        let settings = ["--freeze", "features", "--epochs", "2", "--out", "t.onnx"];
        case.frostline(&[&job[..], &settings, more].concat())
    };
    for finished in [train("capitals", &["--validation", "0.2"]), train("dev", &[])] {
        assert_eq!(classes(&finished), ["buildings", "forest", "sea"]);
    }
    let undivided = error(&train("capitals", &[]));
    assert!(
        undivided.contains("train/ (3 classes) but no validation/"),
        "{undivided}"
    );
    for (data, deeper) in [
        ("nested", "nested/seg_train/seg_train"),
        ("above", "above/archive"),
    ] {
        for more in [["--validation", "0.2"].as_slice(), &[]] {
            let refused = error(&train(data, more));
            assert!(
                refused.contains(&format!("{deeper}' as the data root")),
                "{refused}"
            );
            assert!(!refused.contains("--validation"), "{refused}");
        }
    }
}

#[test]
fn part_folders_in_capitals_are_not_classes() {
    let case = Case::copy("jobs");
    let ran = case.python("capital_parts.py", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains("2: rc 0") && ran.stdout.contains("3 classes"),
        "{ran:?}"
    );
}

#[test]
fn numbers_in_shards_are_outputs_and_numbered_folders_are_announced() {
    let case = Case::generate("06-numeric-classes");
    let eval = |data: &str| case.frostline(&["--json", "eval", "--model", "colours12.onnx", "--data", data]);
    let accuracy = |finished: &Finished| finished.objects().unwrap().last().unwrap()["accuracy"].as_f64();
    let shards = eval("shards");
    assert_eq!(accuracy(&shards), Some(1.0), "{shards:?}");
    assert!(!shards.stderr.contains("no class names"), "{shards:?}");
    let folders = eval("folders");
    assert!(folders.stderr.contains("output 2 is '10'"), "{folders:?}");
    assert!(accuracy(&folders).unwrap() < 0.5, "{folders:?}");
}

#[test]
fn a_pytorch_loop_on_shards_has_the_numbers_as_labels() {
    let case = Case::generate("06-numeric-classes");
    let ran = case.python("door.py", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("right by construction: 1.0"), "{ran:?}");
}

#[test]
fn images_that_a_kept_layer_was_trained_on_are_refused_for_validation() {
    let case = Case::copy("jobs");
    let ran = case.python("leak_replace.py", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for head in ["keep", "replace"] {
        let refused = ran
            .stdout
            .lines()
            .find(|line| line.starts_with(&format!("{head} rc 1")));
        assert!(
            refused.is_some_and(|line| line.contains("validation images")),
            "{ran:?}"
        );
    }
    assert!(!ran.stdout.contains("held_out: True"), "{ran:?}");
}

#[test]
fn class_folders_as_labels_have_a_column_per_class() {
    let case = Case::copy("jobs");
    let ran = case.python("py_labels.py", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout
            .contains("['a', 'b', 'c'] float32 (9, 3) [[1.0, 0.0, 0.0]"),
        "{ran:?}"
    );
}

#[test]
fn a_group_with_two_rates_is_refused() {
    let case = Case::copy("jobs");
    let ran = case.python("lr_groups.py", &[]);
    assert!(
        ran.stdout.starts_with('2') && ran.stdout.contains("'head' is set more than once"),
        "{ran:?}"
    );
}

#[test]
fn odd_keys_tables_and_batches_are_fine() {
    let case = Case::copy("jobs");
    let ran = case.python("odd.py", &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 7, "{ran:?}");
    assert!(lines.iter().all(|line| line.contains(": fine")), "{ran:?}");
}

fn classes(finished: &Finished) -> Vec<String> {
    let events = finished.objects().unwrap_or_default();
    let dataset = events.iter().find(|event| event["event"] == "dataset");
    let dataset = dataset.unwrap_or_else(|| panic!("no data set: {finished:?}"));
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let names = dataset["classes"].as_array().unwrap().iter();
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn error(finished: &Finished) -> String {
    assert_eq!(finished.code, Some(1), "{finished:?}");
    finished.failure().unwrap()["error"].as_str().unwrap().to_owned()
}
