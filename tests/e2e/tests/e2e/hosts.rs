//! Hosts that are down, die or restart. Also covers interrupted jobs.

use crate::harness::{Scratch, binary, demo, events, frostline, series};
use frostline_e2e::{Finished, HostProcess, Link, finish};
use frostline_graph::Model;
use frostline_graph::build::node;
use frostline_graph::onnx::{TensorProto, data_type};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

#[test]
fn a_second_job_reuses_uploads() {
    let scratch = Scratch::with_photos(6, 2);
    let host = scratch.host(&[]);
    let flags = [
        "--host",
        &host.url(),
        "--token-file",
        host.token_file().to_str().unwrap(),
    ];
    // A fixed split, because losses may differ in the last bit between splits.
    let train = [flags.as_slice(), &["--split", "features"]].concat();
    let first = events(&scratch.train(&train));
    let second = events(&scratch.train(&train));
    let skipped = |events: &[serde_json::Value]| -> Vec<bool> {
        events
            .iter()
            .filter(|event| event["event"] == "upload")
            .map(|event| event["skipped"] == true)
            .collect()
    };
    assert_eq!(skipped(&first), [false, false]);
    assert_eq!(
        skipped(&second),
        [true, true],
        "the second job must reuse all uploads"
    );
    assert_eq!(series(&first, "step", "loss"), series(&second, "step", "loss"));
    let run = finish(frostline().args(["guest", "list", "--json"]).args(flags)).unwrap();
    let guests = run.objects().expect(&run.stderr);
    assert!(
        guests[0]["name"].as_str().unwrap().starts_with("prefix-"),
        "{guests:?}"
    );
}

#[test]
fn an_upload_over_a_link_that_breaks_sends_each_byte_about_once() {
    let scratch = Scratch::with_photos(6, 2);
    let host = scratch.host(&[]);
    let model = scratch.path("heavy.onnx");
    let weight = heavy(&model);
    let token = host.token_file().to_str().unwrap().to_owned();
    let link = Link::open_with_cuts(host.address(), Some(80_000_000), &[weight / 2, weight / 4]).unwrap();
    let model = model.to_str().unwrap();
    let flags = [
        "--host",
        &link.url(),
        "--token-file",
        &token,
        "--model",
        model,
        "--split",
        "features",
    ];
    let run = events(&scratch.train(&flags));
    let upload = run
        .iter()
        .find(|event| event["event"] == "upload" && event["what"] == "model")
        .unwrap();
    let size = upload["bytes"].as_u64().unwrap();
    assert!(size >= weight, "{upload}");
    let resumed = upload["resumed_at"].as_u64().unwrap();
    assert!(weight / 2 < resumed && resumed < size, "{upload}");
    assert!(upload["seconds"].as_f64().unwrap() > 0.0);
    assert!(run.iter().any(|event| event["event"] == "upload_retry"));
    assert!(run.iter().all(|event| event["event"] != "uploading"));
    // Data in flight when the link broke is sent again: up to 2 MB of windows and buffers each time.
    let sent = link.bytes_from_clients();
    assert!(sent < size + (4 << 20), "{sent} bytes for {size}");
    let undisturbed = events(&scratch.train(&["--model", model, "--split", "features"]));
    assert_eq!(series(&run, "step", "loss"), series(&undisturbed, "step", "loss"));
}

/// Writes the demo's backbone with two wide layers before the features. Returns the number of bytes of the
/// weights.
fn heavy(file: &Path) -> u64 {
    const FEATURES: i64 = 128;
    const WIDE: i64 = 12_000;
    let mut proto = Model::read(demo("backbone.onnx")).unwrap().into_proto();
    let graph = proto.graph.as_mut().unwrap();
    let last = graph
        .node
        .iter()
        .position(|node| node.output[0] == "features")
        .unwrap();
    graph.node[last].output[0] = "narrow".to_owned();
    let wide = [
        node("MatMul", &["narrow", "widening"], &["wide"]),
        node("MatMul", &["wide", "narrowing"], &["features"]),
    ];
    graph.node.splice(last + 1..last + 1, wide);
    let mut state = 1_u32;
    let mut noise = |count: i64| -> Vec<u8> {
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 8) as f32 / (1 << 24) as f32 - 0.5) / 100.0
        };
        (0..count).map(next).flat_map(f32::to_le_bytes).collect()
    };
    for (name, dims) in [("widening", [FEATURES, WIDE]), ("narrowing", [WIDE, FEATURES])] {
        graph.initializer.push(TensorProto {
            name: name.to_owned(),
            dims: dims.to_vec(),
            data_type: data_type::FLOAT,
            raw_data: noise(FEATURES * WIDE).into(),
            ..TensorProto::default()
        });
    }
    Model::from_proto(proto).unwrap().write(file).unwrap();
    (2 * FEATURES * WIDE * 4) as u64
}

#[test]
fn a_wrong_token_is_refused_and_not_shown() {
    let scratch = Scratch::with_photos(4, 2);
    let host = scratch.host(&[]);
    let wrong = scratch.path("wrong-token");
    std::fs::write(&wrong, "a-secret-nobody-may-see").unwrap();
    let run = scratch.train(&["--host", &host.url(), "--token-file", wrong.to_str().unwrap()]);
    scratch.assert_failed(&run, &["401"]);
    assert!(!run.stderr.contains("nobody-may-see") && !run.stdout.contains("nobody-may-see"));
}

#[test]
fn a_host_that_is_down_is_named() {
    let scratch = Scratch::with_photos(4, 2);
    let mut host = scratch.host(&[]);
    let (url, token) = (host.url(), host.token_file().to_path_buf());
    host.kill().unwrap();
    scratch.assert_failed(
        &scratch.train(&["--host", &url, "--token-file", token.to_str().unwrap()]),
        &[&url[7..]],
    );
}

#[test]
fn data_outside_the_granted_roots_is_refused() {
    let scratch = Scratch::with_photos(4, 2);
    let host = scratch.host(&[]);
    let flags = [
        "--host",
        &host.url(),
        "--token-file",
        host.token_file().to_str().unwrap(),
        "--data",
        "/etc",
    ];
    scratch.assert_failed(&scratch.train(&flags), &["/etc"]);
}

#[test]
fn a_host_that_dies_and_comes_back_loses_nothing() {
    let scratch = Scratch::with_photos(16, 4);
    let mut host = scratch.host(&[]);
    let address = host.address();
    let (url, token) = (host.url(), host.token_file().to_path_buf());
    let flags = [
        "--host",
        &url,
        "--token-file",
        token.to_str().unwrap(),
        "--epochs",
        "6",
        "--split",
        "none",
    ];
    let undisturbed = series(&events(&scratch.train(&flags)), "step", "loss");

    let mut again = None;
    let run = scratch.disturbed(&flags, || {
        host.kill().unwrap();
        let (photos, folder) = (scratch.path("photos"), scratch.path(""));
        let listen = ["--listen", &address.to_string()];
        again = Some(HostProcess::start(&binary(), &folder, photos.to_str().unwrap(), &listen).unwrap());
    });
    assert_eq!(series(&events(&run), "step", "loss"), undisturbed);
}

#[test]
fn an_interrupted_job_ends_with_130_and_writes_what_it_has() {
    let scratch = Scratch::with_photos(8, 2);
    let mut child = scratch
        .train_command(&["--epochs", "100000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("\"step\"")));
    finish(Command::new("kill").args(["-INT", &child.id().to_string()])).unwrap();
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(130),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = Finished::from(output).failure().unwrap().to_string();
    assert!(said.contains("tuned.onnx") && said.contains("--resume"), "{said}");
    assert!(scratch.path("tuned.onnx").is_file());
}

#[test]
fn a_terminated_host_ends_cleanly() {
    let scratch = Scratch::with_photos(4, 2);
    let mut host = scratch.host(&[]);
    finish(Command::new("kill").args(["-TERM", &host.id().to_string()])).unwrap();
    assert_eq!(host.wait().unwrap().code(), Some(0));
}

#[test]
fn a_host_says_what_is_wrong_with_its_configuration() {
    let scratch = Scratch::new();
    let file = scratch.path("host.toml");
    std::fs::write(&file, "listne = \"127.0.0.1:0\"\n").unwrap();
    let run = finish(frostline().args(["serve", "--config"]).arg(&file)).unwrap();
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("listne"), "{}", run.stderr);
}

/// Returns the numbers of the steps that a job reports on standard output.
fn steps(job: &mut Child) -> impl Iterator<Item = u64> + use<> {
    let lines = BufReader::new(job.stdout.take().unwrap()).lines();
    lines.filter_map(|line| {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        (event["event"] == "step").then(|| event["step"].as_u64().unwrap())
    })
}

mod long {
    use super::*;

    #[test]
    fn a_host_that_dies_for_good_ends_the_job_and_the_model_is_written() {
        let scratch = Scratch::with_photos(16, 4);
        let mut host = scratch.host(&[]);
        let flags = [
            "--host",
            &host.url(),
            "--token-file",
            host.token_file().to_str().unwrap(),
            "--epochs",
            "1000",
        ];
        let mut child = scratch
            .train_command(&flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut steps = steps(&mut child);
        let first = steps.next().expect("the job ended early");
        host.kill().unwrap();
        let last = steps.last().unwrap_or(first);
        let run = Finished::from(child.wait_with_output().unwrap());
        assert_eq!(run.code, Some(1), "{run:?}");
        let failure = run.failure().unwrap();
        let error = failure["error"].as_str().unwrap();
        assert!(error.contains(&host.url()[7..]), "{error}");
        // The steps before the failure are kept.
        let out = scratch.path("tuned.onnx");
        assert!(
            error.contains(&format!("was written to {}", out.display())),
            "{error}"
        );
        assert!(out.exists());

        // When the host is back, the suggested command continues with the next step.
        let listen = ["--listen", &host.address().to_string()];
        let _again = scratch.host(&listen);
        let words = failure["next"][0]["run"].as_array().unwrap().iter();
        let mut resume = frostline();
        resume
            .args(words.map(|word| word.as_str().unwrap()))
            .arg("--json");
        let mut child = resume.stdout(Stdio::piped()).spawn().unwrap();
        let mut steps = super::steps(&mut child);
        assert_eq!(steps.next(), Some(last + 1));
        finish(Command::new("kill").args(["-INT", &child.id().to_string()])).unwrap();
        steps.for_each(drop);
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
}
