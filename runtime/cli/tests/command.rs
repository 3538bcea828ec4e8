//! Tests of the command line.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "command/doctor.rs"]
mod doctor;
#[path = "command/extraction.rs"]
mod extraction;
#[path = "command/hostile.rs"]
mod hostile;
#[path = "command/images.rs"]
mod images;
#[path = "command/links.rs"]
mod links;
#[path = "command/outputs.rs"]
mod outputs;
#[path = "command/reports.rs"]
mod reports;
#[path = "command/runs.rs"]
mod runs;
#[path = "command/secrets.rs"]
mod secrets;
#[path = "command/simulations.rs"]
mod simulations;
#[path = "command/states.rs"]
mod states;
#[path = "command/sweeps.rs"]
mod sweeps;

use frostline_graph::build::{batched, model, node};
use frostline_graph::onnx::GraphProto;
use prost::Message;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn frostline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frostline"))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in [
        "train",
        "eval",
        "predict",
        "profile",
        "plan",
        "report",
        "runs",
        "serve",
        "cache list",
        "cache clear",
        "guest new",
        "guest build",
        "guest check",
        "guest run",
        "guest push",
        "guest list",
        "guest show",
        "guest logs",
        "doctor",
        "model show",
        "model list",
        "admin guest show",
        "admin guest disable",
        "admin model push",
        "admin model remove",
        "admin state backup",
        "admin state verify",
        "admin state restore",
    ] {
        let mut arguments: Vec<&str> = command.split(' ').collect();
        arguments.push("--help");
        let output = frostline(&arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && text.contains(&format!("  frostline {command}")),
            "{text}"
        );
    }
}

#[test]
fn a_wrong_flag_is_a_usage_error() {
    let output = frostline(&["train", "--modle", "x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--modle"));
}

#[test]
fn an_unknown_encoding_is_a_usage_error_that_names_the_known_ones() {
    let output = frostline(&["train", "--encoding", "f16+gzip"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("f32, u8, f16 or int8") && text.contains("+zstd"),
        "{text}"
    );
}

#[test]
fn a_name_in_other_letters_is_suggested() {
    for (arguments, code, meant) in [
        (&["train", "--encoding", "F16"][..], 2, "did you mean f16"),
        (
            &["admin", "quota", "set", "acme", "runing=2"],
            2,
            "did you mean running",
        ),
    ] {
        let refused = frostline(arguments);
        let text = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(code), "{text}");
        assert!(text.contains(meant), "{text}");
    }
}

/// Characters that control a terminal, for names in external input.
const STEERING: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{7f}";

/// Returns both outputs of a command, which must not contain control characters.
fn steers_nothing(arguments: &[&str]) -> String {
    let output = frostline(arguments);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let steers = |character: &char| STEERING.contains(*character) && !character.is_ascii_graphic();
    assert_eq!(text.chars().find(steers), None, "{text}");
    assert!(!text.is_empty());
    text
}

#[test]
fn nothing_that_others_wrote_steers_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    // Tensor names in a model.
    let cut = format!("cut{STEERING}");
    let graph = GraphProto {
        name: "named".into(),
        node: vec![node("Relu", &["x"], &[&cut]), node("Flatten", &[&cut], &["y"])],
        input: vec![batched("x", &[3, 2, 2])],
        output: vec![batched("y", &[12])],
        ..GraphProto::default()
    };
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model(17, graph).encode_to_vec()).unwrap();
    let path = path.to_str().unwrap();
    let shown = steers_nothing(&["model", "show", path]);
    assert!(shown.contains("cut\\u001b]0;owned"), "{shown}");
    // JSON output contains the original names.
    let shown = steers_nothing(&["model", "show", path, "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let names: Vec<&str> = shown["cuts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|cut| cut["name"].as_str())
        .collect();
    assert!(names.contains(&cut.as_str()), "{names:?}");
    // Error messages with arguments, including a name with a line break that imitates another error.
    let missing = format!("{STEERING}\nerror: forged.onnx");
    for arguments in [
        &["model", "show", &missing][..],
        &["model", "show", &missing, "--json"],
        &["train", &format!("--{STEERING}")],
        &["predict", "--model", path, &missing],
        &["admin", "--socket", &missing, "top", "--once"],
    ] {
        let said = steers_nothing(arguments);
        assert!(!said.contains("\nerror: forged"), "{said}");
    }
}

#[test]
fn completions_know_the_commands() {
    let output = frostline(&["completions", "bash"]);
    let script = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && script.contains("on-bad-sample"));
    for command in ["new", "build", "check", "run", "push"] {
        assert!(
            script.contains(&format!("frostline__subcmd__guest,{command})")),
            "{command}"
        );
    }
}

#[test]
fn the_manual_page_is_roff_and_names_the_commands() {
    let output = frostline(&["man"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && page.contains(".TH frostline 1"),
        "{page}"
    );
    for command in ["train", "serve", "guest", "admin", "man"] {
        assert!(
            page.contains(&format!("frostline\\-{command}(1)")),
            "{command}: {page}"
        );
    }
}

#[test]
fn every_command_has_a_manual_page_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    let output = frostline(&["man", "--directory", pages.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let page = |name: &str| std::fs::read_to_string(pages.join(name));
    for name in [
        "frostline.1",
        "frostline-train.1",
        "frostline-guest-push.1",
        "frostline-admin-model-push.1",
    ] {
        assert!(page(name).unwrap().contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(page("frostline-train.1").unwrap().contains("\\-\\-freeze"));
    assert!(page("frostline-lanes.1").is_err(), "hidden commands have no page");
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn backbone() -> String {
    repository("models/zoo/demo/backbone.onnx")
        .to_str()
        .unwrap()
        .to_owned()
}

/// Returns the JSON object that a failed command writes to standard error.
fn failure(output: &Output) -> Value {
    serde_json::from_slice(&output.stderr).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn with_json_errors_are_objects_too() {
    let failed = frostline(&["eval", "--json", "--model", "nowhere.onnx", "--data", "."]);
    assert_eq!(failed.status.code(), Some(1));
    let said = failure(&failed);
    assert_eq!((&said["kind"], &said["code"]), (&"failed".into(), &1.into()));
    assert!(said["error"].as_str().unwrap().contains("nowhere.onnx"), "{said}");

    let typed = frostline(&["train", "--json", "--modle", "x"]);
    assert_eq!(typed.status.code(), Some(2));
    let said = failure(&typed);
    assert_eq!((&said["kind"], &said["code"]), (&"usage".into(), &2.into()));
    assert!(said["error"].as_str().unwrap().contains("--modle"), "{said}");
    assert!(said["hint"].as_str().unwrap().contains("--model"), "{said}");
    assert!(frostline(&["--json", "--help"]).status.success());
}

#[test]
fn the_exit_codes_are_documented() {
    let help = String::from_utf8(frostline(&["--help"]).stdout).unwrap();
    for line in [
        "  1    failure",
        "  2    invalid command line",
        "  130  interrupted",
    ] {
        assert!(help.contains(line), "{help}");
    }
}

#[test]
fn a_models_sha256_is_the_files() {
    let file = backbone();
    let hash = hex::encode(Sha256::digest(std::fs::read(&file).unwrap()));
    let shown = frostline(&["model", "show", &file]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.starts_with(&format!("{file}  sha256:{hash}\n")), "{text}");
    let shown = frostline(&["model", "show", "--json", &file]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["sha256"], hash);
    assert_eq!(shown["host_sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn a_log_that_no_terminal_shows_has_no_colors() {
    let logged = frostline(&["-vv", "model", "show", &backbone()]);
    let log = String::from_utf8(logged.stderr).unwrap();
    assert!(log.contains("started") && !log.contains('\x1b'), "{log:?}");
}

#[test]
fn a_compiler_without_the_target_is_found_before_anything_is_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let script = |name: &str, text: &str| {
        std::fs::write(path(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(path(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    // Like rustc if the target is not installed: prints the folder where the target would be.
    script("rustc", "echo /nowhere/wasm32-unknown-unknown/lib");
    script("cargo", &format!("touch {}", path("compiled").display()));
    std::fs::write(path("Cargo.toml"), "").unwrap();
    let built = Command::new(env!("CARGO_BIN_EXE_frostline"))
        .args(["guest", "build"])
        .arg(folder.path())
        .env("RUSTC", path("rustc"))
        .env("CARGO", path("cargo"))
        .output()
        .unwrap();
    assert_eq!(built.status.code(), Some(1));
    let error = String::from_utf8(built.stderr).unwrap();
    assert!(
        error.contains("rustup target add wasm32-unknown-unknown"),
        "{error}"
    );
    assert!(!path("compiled").exists());
}

#[test]
fn a_guest_that_made_nothing_of_any_sample_has_failed() {
    let guest = repository("guest/prefix/prefix.wasm");
    let photos = repository("models/zoo/demo/photos");
    let run = |keys: &str| {
        let guest = guest.to_str().unwrap();
        let photos = photos.to_str().unwrap();
        let model = backbone();
        frostline(&[
            "guest", "run", guest, "--data", photos, "--keys", keys, "--model", &model, "--json",
        ])
    };
    let none = run("no/such.jpg,nor/this.jpg");
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    assert!(
        failure(&none)["error"]
            .as_str()
            .unwrap()
            .contains("all 2 samples failed")
    );
    let report: Value = serde_json::from_slice(&none.stdout).unwrap();
    assert_eq!(report["failed"].as_array().unwrap().len(), 2);
    assert_eq!(run("no/such.jpg,train/cat/00.jpg").status.code(), Some(0));
}
