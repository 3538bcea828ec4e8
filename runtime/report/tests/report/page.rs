//! Tests of the page's contents, escaping and size.

use crate::sample::{Sample, add_mistakes};
use frostline_report::{Run, html};
use quick_xml::Reader;
use quick_xml::events::Event;
use std::fs;
use std::path::Path;

fn read(sample: &Sample, folder: &Path, name: &str) -> Run {
    Run::read(&sample.write(folder, name)).unwrap()
}

fn page(sample: &Sample) -> String {
    let folder = tempfile::tempdir().unwrap();
    html(&[read(sample, folder.path(), "run")])
}

/// Returns the names of all elements, and verifies that the page is well-formed. Browsers would repair
/// malformed pages silently.
fn elements(page: &str) -> Vec<String> {
    let mut reader = Reader::from_str(page);
    let mut names = Vec::new();
    let mut depth = 0;
    loop {
        let event = reader
            .read_event()
            .unwrap_or_else(|error| panic!("{error} at {}", reader.buffer_position()));
        let element = match &event {
            Event::Start(start) => {
                depth += 1;
                start
            }
            Event::Empty(start) => start,
            Event::End(_) => {
                depth -= 1;
                continue;
            }
            Event::Eof => break,
            _ => continue,
        };
        for attribute in element.attributes() {
            let attribute = attribute.unwrap();
            let name = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
            assert!(!name.starts_with("on"), "{name}");
        }
        names.push(String::from_utf8_lossy(element.name().as_ref()).into_owned());
    }
    assert_eq!(depth, 0);
    names
}

fn assert_alone(page: &str) {
    for outside in [
        "http://",
        "https://",
        "url(",
        "@import",
        "<link",
        "<script",
        "<iframe",
        "javascript:",
    ] {
        // URLs from the job may appear as text.
        let found = page.match_indices(outside).filter(|(at, _)| {
            let before = &page[at.saturating_sub(6)..*at];
            before.ends_with("=\"") || !outside.starts_with("http")
        });
        assert_eq!(found.count(), 0, "{outside}");
    }
    assert!(!page.contains("NaN") && !page.contains(">inf"));
}

#[test]
fn a_page_has_everything_that_the_folder_tells() {
    let page = page(&Sample::clothing());
    let names = elements(&page);
    assert_alone(&page);
    for section in [
        "Best accuracy",
        "Top-5 accuracy",
        "Training loss",
        "Confusion matrix",
        "Each class",
        "Timeline",
        "Plan",
        "Bytes by purpose",
        "Activations per epoch",
        "Configuration",
        "features.7",
        "recipe.weight_decay",
        "store-2:8443 is down",
        "training the layers after features.7",
        "0 of 3069 features cached",
    ] {
        assert!(page.contains(section), "{section}");
    }
    let charts = names.iter().filter(|name| *name == "svg").count();
    let titles = page.matches("role=\"img\"><title>").count();
    let hidden = page.matches("aria-hidden=\"true\"><").count();
    assert!(
        charts > 8 && titles > 6 && titles + hidden >= charts,
        "{charts} {titles} {hidden}"
    );
}

#[test]
fn every_task_has_its_figures() {
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let labels = page(&Sample {
        task: "labels",
        classes: named(&["a", "b"]),
        ..Sample::clothing()
    });
    assert!(labels.contains("Best mean average precision") && labels.contains("F1, micro"));
    let numbers = page(&Sample {
        task: "numbers",
        classes: named(&["age"]),
        ..Sample::clothing()
    });
    assert!(numbers.contains("Best RMSE") && numbers.contains("R²") && !numbers.contains("Confusion"));
    assert!(labels.contains("<h2>Labels</h2>") && labels.contains("mean of all labels"));
    assert!(numbers.contains("<h2>Targets</h2>") && !numbers.contains("mean of all targets"));
    elements(&labels);
    elements(&numbers);
}

/// Returns the page of a run with the given predictions and mistakes.
fn judged_page(task: &'static str, predictions: &str, mistakes: &serde_json::Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    let sample = Sample {
        task,
        ..Sample::clothing()
    };
    let run = sample.write(folder.path(), "run");
    fs::write(run.join("predictions.csv"), predictions).unwrap();
    fs::create_dir(run.join("mistakes")).unwrap();
    fs::write(run.join("mistakes/mistakes.json"), mistakes.to_string()).unwrap();
    let page = html(&[Run::read(&run).unwrap()]);
    elements(&page);
    assert_alone(&page);
    page
}

fn assert_row(page: &str, name: &str, cells: &[&str]) {
    let cells: Vec<String> = cells
        .iter()
        .map(|cell| format!(r#"<td class="n">{cell}</td>"#))
        .collect();
    let row = format!(r#"<th scope="row" class="name">{name}</th>{}"#, cells.concat());
    assert!(page.contains(&row), "{row} is missing");
}

#[test]
fn labels_have_a_row_each_and_the_worst_images() {
    // The label "warm" is found in one of two images, and there is a false positive. The ranking is positive,
    // negative, positive.
    let page = judged_page(
        "labels",
        "key,label:warm,predicted:warm,probability:warm,label:<cold>,predicted:<cold>,probability:<cold>\n\
         a,1,1,0.9,0,0,0.1\nb,0,1,0.8,0,0,0.2\nc,1,0,0.3,0,0,0.4\n",
        &serde_json::json!([
            {"key": "b", "label": "", "predicted": "warm", "wrong": 1, "loss": 0.916},
            {"key": "c", "label": "warm", "predicted": "", "wrong": 1, "loss": 0.857},
        ]),
    );
    assert_row(&page, "warm", &["2", "50.0 %", "50.0 %", "50.0 %", "83.3 %"]);
    assert_row(&page, "&lt;cold&gt;", &["0", "–", "–", "–", "–"]);
    assert_row(
        &page,
        "mean of all labels",
        &["3", "25.0 %", "25.0 %", "25.0 %", "83.3 %"],
    );
    assert!(page.contains("the most wrong labels"));
    assert!(page.contains(r#"no label<br/><span class="taken">predicted warm; 1 wrong, loss 0.916</span>"#));
    assert!(page.contains(r#"warm<br/><span class="taken">predicted no label; 1 wrong, loss 0.857</span>"#));
}

#[test]
fn numbers_have_a_row_each_and_the_worst_images() {
    // The ages 2 and 6 have the errors 1 and -3. All sizes are correct.
    let page = judged_page(
        "numbers",
        "key,label:age,predicted:age,label:size,predicted:size\na,2,3,1,1\nb,6,3,2,2\n",
        &serde_json::json!([{"key": "b", "label": "6", "predicted": "3.0012345", "target": "age", "error": 2.9987655}]),
    );
    assert_row(&page, "age", &["2.00", "2.24", "-0.250", "4.00"]);
    assert_row(&page, "size", &["0", "0", "1.00", "1.50"]);
    assert_row(&page, "mean of all targets", &["1.00", "1.12", "0.375"]);
    assert!(page.contains("Images with the largest error."));
    assert!(page.contains(r#"age 6.00<br/><span class="taken">predicted 3.00, error 3.00</span>"#));
}

#[test]
fn the_best_epoch_is_the_one_with_the_best_figure() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    let epoch = |number: u32, rmse: &str| {
        format!(
            "{{\"event\":\"epoch\",\"epoch\":{number},\"loss\":1.0,\"validation_mae\":1.0,\"validation_rmse\":{rmse},\"validation_r2\":0.5,\
             \"bytes_received\":1,\"validation_bytes_received\":0,\"cached_rows\":0,\"fetched_rows\":1,\"seconds\":1.0,\"waited_seconds\":0.0,\"split\":\"none\",\"skipped\":0,\"at\":{number}}}\n"
        )
    };
    let text = [
        epoch(1, "3.0"),
        epoch(2, "1.25"),
        epoch(3, "null"),
        epoch(4, "1.25"),
    ]
    .concat();
    fs::write(run.join("events.jsonl"), text).unwrap();
    let page = html(&[Run::read(run).unwrap()]);
    assert!(
        page.contains("<dt>Best RMSE</dt><dd>1.25</dd><dd>epoch 2 of 4</dd>"),
        "{page}"
    );
}

#[test]
fn untrusted_text_is_escaped() {
    let evil = "</title></style><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u{202e}\u{0}";
    let folder = tempfile::tempdir().unwrap();
    let mut sample = Sample::clothing();
    sample.classes[3] = evil.to_owned();
    let run = sample.write(folder.path(), "<b>run&");
    fs::write(
        run.join("config.json"),
        serde_json::json!({ evil: evil, "list": [evil] }).to_string(),
    )
    .unwrap();
    let plan = serde_json::json!({"split": evil, "policy": evil, "candidates": [{"split": evil, "encoding": evil, "iteration_seconds": 1.0,
        "bottleneck": evil}]});
    fs::write(run.join("plan.json"), plan.to_string()).unwrap();
    let image = run.join("evil.png");
    fs::write(&image, b"\x89PNG\r\n\x1a\n").unwrap();
    add_mistakes(&run, &[image]);
    let listed = serde_json::json!([{"key": evil, "label": evil, "predicted": evil, "probability": 0.5, "image": "00.png"}]);
    fs::write(run.join("mistakes/mistakes.json"), listed.to_string()).unwrap();
    for event in [
        serde_json::json!({"event": "warning", "message": evil, "at": 1.0}),
        serde_json::json!({"event": "host", "host": evil, "state": "down", "reason": evil}),
        serde_json::json!({"event": "bad_sample", "key": evil, "message": evil}),
        serde_json::json!({"event": "replan", "step": 1, "from": evil, "to": evil, "encoding": "f16", "reason": evil}),
        serde_json::json!({"event": "epoch", "epoch": 21, "loss": 1.0, "validation_<b>": 1.0, "validation_accuracy": 0.5, "bytes_received": 1,
            "validation_bytes_received": 0, "seconds": 1.0, "waited_seconds": 0.5, "split": evil, "skipped": 0, "cached_rows": 0, "fetched_rows": 1}),
    ] {
        let file = run.join("events.jsonl");
        let text = fs::read_to_string(&file).unwrap() + &event.to_string() + "\n";
        fs::write(&file, text).unwrap();
    }
    let other = Run::read(&Sample::clothing().write(folder.path(), "other")).unwrap();
    for page in [
        html(&[Run::read(&run).unwrap()]),
        html(&[Run::read(&run).unwrap(), other]),
    ] {
        let names = elements(&page);
        assert!(!names.iter().any(|name| name == "script" || name == "b"));
        assert_eq!(names.iter().filter(|name| *name == "style").count(), 1);
        assert_alone(&page);
        assert!(page.contains("&lt;script&gt;") && !page.contains('\u{202e}') && !page.contains('\0'));
    }
}

#[test]
fn the_full_matrix_of_a_hundred_classes_is_bounded_too() {
    let page = page(&Sample {
        classes: (0..100).map(|place| format!("class {place}")).collect(),
        ..Sample::clothing()
    });
    assert!(
        page.contains("<h3>Confusion matrix") && page.len() < 1_000_000,
        "{}",
        page.len()
    );
}

#[test]
fn several_runs_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let runs = [
        read(&Sample::clothing(), folder.path(), "first"),
        read(
            &Sample {
                rate: 0.2,
                seed: 3,
                reuse: false,
                epochs: 7,
                ..Sample::clothing()
            },
            folder.path(),
            "second",
        ),
    ];
    let page = html(&runs);
    elements(&page);
    assert_alone(&page);
    for said in [
        "2 runs compared",
        "first",
        "second",
        "recipe.lr",
        "feature_cache",
        "Accuracy over time",
    ] {
        assert!(page.contains(said), "{said}");
    }
    // Equal settings are not listed.
    assert!(!page.contains("recipe.momentum"));
    assert!(page.contains("class=\"best\""));
    assert!(html(&[]).contains("No runs to compare"));
}

#[test]
fn more_runs_than_colors_are_told_apart_by_dashes_and_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let sample = Sample {
        epochs: 3,
        steps: 4,
        ..Sample::clothing()
    };
    let runs: Vec<Run> = (0..14)
        .map(|place| read(&sample, &folder.path().join(place.to_string()), "same"))
        .collect();
    let page = html(&runs);
    assert!(
        page.contains("l0 d1") && page.contains("same (12)") && page.contains("Showing 12 of 14 runs."),
        "{page}"
    );
}

#[test]
fn a_plan_stands_beside_what_was_measured_without_kept_rows() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    let step = |epoch: u32, step: u32, waited: f64, kept: u32| {
        format!(
            "{{\"event\":\"step\",\"epoch\":{epoch},\"step\":{step},\"loss\":1.0,\"split\":\"a\",\"waited_seconds\":{waited},\
             \"computed_seconds\":0.5,\"bytes_received\":1,\"rows\":1,\"cached_rows\":{kept},\"at\":{step}}}\n"
        )
    };
    let epoch = |epoch: u32, kept: u32| {
        format!(
            "{{\"event\":\"epoch\",\"epoch\":{epoch},\"loss\":1.0,\"validation_accuracy\":0.5,\"bytes_received\":1,\"validation_bytes_received\":0,\
             \"seconds\":2.0,\"waited_seconds\":0.0,\"split\":\"a\",\"skipped\":0,\"cached_rows\":{kept},\"fetched_rows\":0,\"at\":{}}}\n",
            epoch * 3
        )
    };
    let text = [
        step(1, 1, 9.0, 0),
        step(1, 2, 1.5, 0),
        step(1, 3, 1.5, 0),
        // The validation before training cached these features.
        epoch(1, 2),
        step(2, 4, 0.0, 1),
        step(2, 5, 0.0, 1),
        step(2, 6, 0.0, 1),
        step(2, 7, 0.0, 1),
        epoch(2, 4),
        "{\"event\":\"test\",\"test_accuracy\":0.625,\"samples\":40,\"seconds\":1.0,\"at\":9}\n".to_owned(),
    ];
    fs::write(run.join("events.jsonl"), text.concat()).unwrap();
    let plan = serde_json::json!({"split": "a", "encoding": "f16", "iteration_seconds": 1.6,
        "candidates": [{"split": "a", "encoding": "f16", "iteration_seconds": 1.6}, {"split": "b", "encoding": "f16", "iteration_seconds": 4.0}]});
    fs::write(run.join("plan.json"), plan.to_string()).unwrap();
    let page = html(&[Run::read(run).unwrap()]);
    assert!(
        page.contains("Predicted 1.6 s per iteration; measured 2.0 s, 25 % more."),
        "{page}"
    );
    assert!(
        page.contains("Test accuracy") && page.contains("of 40 images"),
        "{page}"
    );
}

mod long {
    use super::*;

    #[test]
    fn a_huge_run_has_a_page_of_ordinary_size() {
        let folder = tempfile::tempdir().unwrap();
        let sample = Sample {
            epochs: 400,
            steps: 250,
            classes: (0..3000).map(|place| format!("class number {place}")).collect(),
            ..Sample::clothing()
        };
        let page = html(&[read(&sample, folder.path(), "run")]);
        assert!(page.len() < 1_000_000, "{}", page.len());
        assert!(page.contains("Most confused classes") && !page.contains("<h3>Confusion matrix"));
        elements(&page);
    }
}
