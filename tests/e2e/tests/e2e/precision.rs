//! Jobs that request less than full precision without a GPU.

use crate::harness::{Scratch, demo, events, frostline, series};
use frostline_e2e::finish;
use serde_json::{Value, json};

/// Texts of the warnings about the precision of this machine, and notices about hosts.
fn reports(events: &[Value]) -> (Vec<&str>, Vec<&Value>) {
    let warnings = events.iter().filter(|event| event["event"] == "warning");
    let warnings = warnings.filter_map(|event| event["message"].as_str());
    let notices = events.iter().filter(|event| event["event"] == "precision");
    (
        warnings.filter(|text| text.contains("full precision")).collect(),
        notices.collect(),
    )
}

#[test]
fn hosts_without_a_gpu_compute_in_f32_and_say_so_once() {
    let scratch = Scratch::with_photos(8, 2);
    let host = scratch.host(&[]);
    let (url, token) = (host.url(), host.token_file());
    let at_host = ["--host", &url, "--token-file", token.to_str().unwrap()];
    let uncached = ["--feature-cache", "off"];
    let run = |precision: &str, split: &str| {
        let flags = ["--precision", precision, "--split", split, "--epochs", "2"];
        events(&scratch.train(&[&at_host[..], &uncached, &flags].concat()))
    };
    let full = run("full", "features");
    assert_eq!(reports(&full), (Vec::new(), Vec::new()));
    let less = run("f16", "features");
    let expected = json!({"event": "precision", "host": url, "permitted": "f16", "computed": "full"});
    assert_eq!(reports(&less), (Vec::new(), vec![&expected]));
    assert_eq!(series(&less, "step", "loss"), series(&full, "step", "loss"));
    // The trainer computes all frozen layers.
    let local = run("f16", "none");
    let (warnings, notices) = reports(&local);
    assert!(matches!(warnings[..], [text] if text.starts_with("this machine") && text.contains("f16")));
    assert_eq!(notices, Vec::<&Value>::new());

    let mut extract = frostline();
    extract.args([
        "extract",
        "--model",
        demo("backbone.onnx").to_str().unwrap(),
        "--precision",
        "tf32",
    ]);
    extract
        .args(["--data", scratch.path("photos").to_str().unwrap()])
        .args(at_host)
        .args(uncached);
    let extracted = finish(extract.arg("--out").arg(scratch.path("rows.arrow"))).unwrap();
    assert_eq!(extracted.code, Some(0), "{extracted:?}");
    let said = "computes frozen layers in full precision (f32), because tf32 requires an NVIDIA GPU";
    assert_eq!(extracted.stderr.matches(said).count(), 1, "{extracted:?}");
}
