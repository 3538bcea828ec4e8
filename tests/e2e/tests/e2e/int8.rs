//! Frozen layers in int8, on hosts with lanes in child processes.

use crate::harness::{Scratch, demo, events, frostline, series};
use frostline_e2e::finish;
use serde_json::Value;
use std::fs;

fn int8_event(events: &[Value]) -> &Value {
    let mut found = events.iter().filter(|event| event["event"] == "int8");
    found.next().expect("the job compares int8 with f32")
}

#[test]
fn a_network_is_written_in_int8_and_trains_behind_the_cut() {
    let scratch = Scratch::with_photos(4, 2);
    let (model, out) = (demo("backbone.onnx"), scratch.path("int8.onnx"));
    let mut command = frostline();
    command
        .args([
            "--json",
            "model",
            "quantize",
            model.to_str().unwrap(),
            "--freeze",
            "features",
        ])
        .args(["--data", scratch.path("photos").to_str().unwrap()])
        .args(["--out", out.to_str().unwrap()]);
    let written = finish(&mut command).unwrap();
    assert_eq!(written.code, Some(0), "{written:?}");
    let line: Value = serde_json::from_str(written.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&line["quantized"], &line["comparison"]["used"]),
        (&Value::from(true), &Value::from(true))
    );
    assert!(fs::metadata(&out).unwrap().len() * 2 < fs::metadata(&model).unwrap().len());
    let cached = ["--feature-cache", "off"];
    let flags = [&["--model", out.to_str().unwrap()][..], &cached].concat();
    let again = events(&scratch.train(&flags));
    let int8 = [&["--prefix-precision", "int8"][..], &cached].concat();
    let direct = events(&scratch.train(&int8));
    // The calibrations use different images of the same classes, so losses may differ slightly.
    let losses = |events: &[Value]| series(events, "step", "loss");
    for (again, direct) in losses(&again).into_iter().zip(losses(&direct)) {
        assert!((again - direct).abs() < 0.02, "{again} {direct}");
    }
}

mod long {
    use super::*;

    #[test]
    fn losses_do_not_depend_on_the_split() {
        let scratch = Scratch::with_photos(6, 2);
        let host = scratch.host(&[]);
        let (url, token) = (host.url(), host.token_file());
        let run = |split: &str| {
            let run = scratch.train(&[
                "--host",
                &url,
                "--token-file",
                token.to_str().unwrap(),
                "--split",
                split,
                "--prefix-precision",
                "int8",
                "--feature-cache",
                "off",
            ]);
            events(&run)
        };
        let reference = run("none");
        assert_eq!(int8_event(&reference)["used"], true);
        assert!(int8_event(&reference)["cosine"].as_f64().unwrap() > 0.99);
        let expected = series(&reference, "step", "loss");
        for split in ["input", "stem", "stage2.0", "features", "auto"] {
            let losses = series(&run(split), "step", "loss");
            assert_eq!(losses.len(), expected.len(), "{split}");
            for (loss, expected) in losses.iter().zip(&expected) {
                assert!((loss - expected).abs() < 1e-4, "{split}: {losses:?} {expected:?}");
            }
        }
        let (model, data) = (scratch.path("tuned.onnx"), scratch.path("photos"));
        let mut eval = frostline();
        eval.args([
            "eval",
            "--model",
            model.to_str().unwrap(),
            "--data",
            data.to_str().unwrap(),
        ]);
        let eval = finish(&mut eval).unwrap();
        // Evaluates both the file, in f32, and the network with frozen layers in int8, as trained.
        assert!(eval.stdout.contains("with frozen layers in int8"), "{eval:?}");
    }
}
