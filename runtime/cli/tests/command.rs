//! The command line as a shell sees it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "command/doctor.rs"]
mod doctor;
#[path = "command/runs.rs"]
mod runs;

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
        "admin model publish",
        "admin model remove",
        "admin simulate",
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
        "frostline-admin-model-publish.1",
    ] {
        assert!(page(name).unwrap().contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(page("frostline-train.1").unwrap().contains("\\-\\-freeze"));
    assert!(
        page("frostline-lanes.1").is_err(),
        "what nobody types has no page"
    );
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

/// The object on standard error of a command that failed.
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
    for line in ["  1    it failed", "  2    the command line", "  130  it was"] {
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
fn a_log_that_no_terminal_shows_has_no_colours() {
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
    // As rustc answers where the target is not installed: with the folder it would be in.
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
    let (guest, photos) = (
        repository("guest/prefix/prefix.wasm"),
        repository("models/zoo/demo/photos"),
    );
    let run = |keys: &str| {
        let (guest, photos, model) = (guest.to_str().unwrap(), photos.to_str().unwrap(), backbone());
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
            .contains("not one of the 2 samples")
    );
    let report: Value = serde_json::from_slice(&none.stdout).unwrap();
    assert_eq!(report["failed"].as_array().unwrap().len(), 2);
    assert_eq!(run("no/such.jpg,train/cat/00.jpg").status.code(), Some(0));
}

/// The demo's network with names for its outputs.
fn named_network(folder: &Path) -> String {
    let mut model = frostline_graph::Model::read(backbone()).unwrap();
    let outputs = model.network().unwrap().output.shape.dims()[0];
    let names: Vec<String> = (0..outputs).map(|number| format!("kind {number}")).collect();
    model.set_metadata("frostline.classes", &serde_json::to_string(&names).unwrap());
    let file = folder.join("named.onnx");
    model.write(&file).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn images_are_predicted_without_a_host_and_a_broken_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    std::fs::create_dir(&photos).unwrap();
    for (number, name) in ["b.jpg", "a.jpg"].into_iter().enumerate() {
        let photo = repository(&format!("models/zoo/demo/photos/train/cat/0{number}.jpg"));
        std::fs::copy(photo, photos.join(name)).unwrap();
    }
    let path = photos.to_str().unwrap();
    let predict =
        |model: &str, flags: &[&str]| frostline(&[&["predict", "--model", model, path][..], flags].concat());
    let lines = |bytes: &[u8]| -> Vec<String> {
        let text = std::str::from_utf8(bytes).unwrap();
        text.lines().map(str::to_owned).collect()
    };

    let said = predict(&backbone(), &["--top", "2"]);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    let said = lines(&said.stdout);
    assert_eq!(said.len(), 2);
    for (line, name) in said.iter().zip(["a.jpg", "b.jpg"]) {
        assert!(line.starts_with(&format!("{path}/{name}: output ")), "{line}");
        assert_eq!(line.matches(" %").count(), 2, "{line}");
    }

    std::fs::write(photos.join("aa.jpg"), b"no image").unwrap();
    let said = predict(&named_network(folder.path()), &["--json", "nowhere.png"]);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let objects = |bytes: &[u8]| -> Vec<Value> {
        let object = |line: &String| serde_json::from_str(line).unwrap();
        lines(bytes).iter().map(object).collect()
    };
    let (answers, errors) = (objects(&said.stdout), objects(&said.stderr));
    assert_eq!(answers.len(), 2);
    let classes = answers[0]["classes"].as_array().unwrap();
    assert_eq!(classes.len(), 5);
    assert!(
        classes[0]["class"].as_str().unwrap().starts_with("kind "),
        "{classes:?}"
    );
    let chances: Vec<f64> = classes
        .iter()
        .map(|class| class["probability"].as_f64().unwrap())
        .collect();
    assert!(chances.is_sorted_by(|left, right| left >= right) && chances.iter().sum::<f64>() <= 1.0 + 1e-6);
    assert_eq!(errors[0]["path"], format!("{path}/aa.jpg"));
    assert!(
        errors[0]["error"].as_str().unwrap().contains("not a JPEG"),
        "{errors:?}"
    );
    assert_eq!(errors[1]["path"], "nowhere.png");
    assert_eq!(errors[2]["code"], 1);
    assert!(
        errors[2]["error"].as_str().unwrap().contains("2 of 4"),
        "{errors:?}"
    );
}

#[test]
fn an_evaluation_prints_tables_and_writes_its_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let model = named_network(folder.path());
    let photos = folder.path().join("photos");
    let mut images = 0;
    // Classes of the network by name: it has never seen them, so most are wrong.
    for (class, of) in [("kind 0", "cat"), ("kind 7", "stars")] {
        std::fs::create_dir_all(photos.join(class)).unwrap();
        for number in 0..2 {
            let photo = repository(&format!("models/zoo/demo/photos/train/{of}/0{number}.jpg"));
            std::fs::copy(photo, photos.join(class).join(format!("{number}, a.jpg"))).unwrap();
            images += 1;
        }
    }
    let (photos, table) = (photos.to_str().unwrap(), folder.path().join("predictions.csv"));
    let eval =
        |flags: &[&str]| frostline(&[&["eval", "--model", &model, "--data", photos][..], flags].concat());

    let said = eval(&["--json", "--predictions", table.to_str().unwrap()]);
    assert!(said.status.success(), "{said:?}");
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(said["samples"], images);
    assert_eq!(said["classes"][7]["support"], 2);
    let cells = said["confusion"].as_array().unwrap();
    let count: u64 = cells.iter().map(|cell| cell["count"].as_u64().unwrap()).sum();
    assert_eq!(count, images);
    let table = std::fs::read_to_string(table).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "key,label,predicted,probability,rank");
    assert!(
        lines[1].starts_with("\"kind 0/0, a.jpg\",kind 0,kind "),
        "{table}"
    );
    assert_eq!(lines.len() as u64, 1 + images);

    let shown = eval(&[]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.starts_with("accuracy ") && shown.contains(", top-5 "),
        "{shown}"
    );
    assert!(
        shown.contains("PRECISION") && shown.contains("most confused"),
        "{shown}"
    );
    // What one says is what the other says.
    let first = said["confusion"][0]["predicted"].as_u64().unwrap();
    let of_first = frostline(&["predict", "--json", "--top", "1", "--model", &model, photos]);
    let of_first = String::from_utf8(of_first.stdout).unwrap();
    let taken: Vec<String> = of_first
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["classes"][0]["class"].to_string())
        .collect();
    assert_eq!(taken.len() as u64, images);
    assert!(taken.contains(&format!("\"kind {first}\"")), "{taken:?}");

    let refused = eval(&["--predictions", "/nowhere/predictions.csv"]);
    assert_eq!(refused.status.code(), Some(1));
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(error.contains("/nowhere/predictions.csv"), "{error}");
}

/// Two splits of a job: on 8 Mbit/s the cut is the better one, on 8 Gbit/s none is.
const MEASURED: &str = r#"{"link_bytes_per_second":1e6,"batch":10,"iterations":8,"candidates":[
    {"split":"none","host_seconds":0.1,"trainer_seconds":1,"bytes":9e6},
    {"split":"features","host_seconds":1.5,"trainer_seconds":0.5,"bytes":1e6}]}"#;

#[test]
fn a_simulation_takes_every_flag_or_refuses_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measured.json");
    std::fs::write(&file, MEASURED).unwrap();
    let plan = |flags: &[&str]| {
        frostline(&[&["plan", "--json", "--simulate", file.to_str().unwrap()], flags].concat())
    };
    let split = |flags: &[&str]| {
        let planned = plan(flags);
        let object: Value = serde_json::from_slice(&planned.stdout).unwrap_or_else(|_| panic!("{planned:?}"));
        object["split"].as_str().unwrap().to_owned()
    };
    assert_eq!(split(&[]), "features");
    assert_eq!(split(&["--link-bytes-per-second", "1e9"]), "none");
    assert_eq!(split(&["--candidates", "none"]), "none");
    for flags in [
        &["--batch", "64"][..],
        &["--epochs", "2"],
        &["--encoding", "f16"],
        &["--freeze", "features"],
        &["--hflip", "0.5"],
        &["--validation", "0.2"],
        &["--layout", "objects"],
        &["--device", "cpu"],
        &["--threads", "2"],
        &["--link-bytes-per-second", "0"],
    ] {
        let refused = plan(flags);
        assert_eq!(refused.status.code(), Some(2), "{flags:?}: {refused:?}");
        assert!(failure(&refused)["error"].as_str().unwrap().contains(flags[0]));
    }
    for (flags, meant) in [
        (["--policy", "hapi-sise"], "did you mean hapi-size"),
        (["--candidates", "Features"], "did you mean features"),
    ] {
        let mistyped = plan(&flags);
        assert_eq!(mistyped.status.code(), Some(1));
        let said = failure(&mistyped);
        assert!(said["error"].as_str().unwrap().contains(meant), "{said}");
    }
    let figure = folder.path().join("links.svg");
    assert_eq!(split(&["--plot", figure.to_str().unwrap()]), "features");
    let figure = std::fs::read_to_string(figure).unwrap();
    assert!(figure.contains("best split: features") && figure.contains("best split: none"));
    let alone = plan(&["--candidates", "features", "--plot", "unused.svg"]);
    assert!(failure(&alone)["error"].as_str().unwrap().contains("'none'"));
    assert_eq!(
        plan(&["--candidates", "features", "--policy", "hapi-size"])
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn a_simulation_tells_what_epochs_from_kept_rows_take() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measured.json");
    let reused = MEASURED.replacen(
        r#""iterations":8,"#,
        r#""iterations":80,"epoch_iterations":8,"reuse":{"bytes":1200000000},"#,
        1,
    );
    std::fs::write(&file, reused).unwrap();
    let file = file.to_str().unwrap();
    let text = frostline(&["plan", "--simulate", file]);
    let text = String::from_utf8_lossy(&text.stdout);
    // No step is given: half a second, the least that the trainer does.
    let told = "epochs from the 2nd on take 4.00 s from kept rows (1.20 GB)";
    assert!(text.contains(told), "{text}");
    let planned = frostline(&["plan", "--json", "--simulate", file]);
    let object: Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!(object["kept_iterations"], 72);
    assert_eq!(object["store_bytes"], 1_200_000_000);
    assert_eq!(object["later_epoch_seconds"], 4.0);
    std::fs::write(file, planned.stdout).unwrap();
    let again = frostline(&["plan", "--json", "--simulate", file]);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again, object);
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

#[test]
fn a_scenario_is_played_without_a_host_and_a_bad_one_refused_with_words() {
    let replay = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../host-ops/batching/docs/replays/hapi-18.json"
    );
    let play = |policy: &str| {
        let output = frostline(&["admin", "simulate", replay, "--policy", policy, "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    assert_eq!(play("frostline")["failures"], 0);
    assert!(play("fixed:64")["failures"].as_u64() > Some(0));

    let directory = tempfile::tempdir().unwrap();
    let good = std::fs::read_to_string(replay).unwrap();
    let cases = [
        ("unknown", good.replacen("\"lanes\"", "\"lames\"", 1), "lames"),
        (
            "weightless",
            good.replacen("\"weight\": 1", "\"weight\": 0", 1),
            "1 to 100",
        ),
        (
            "negative",
            good.replacen("\"images\": 8000", "\"images\": -8", 1),
            "-8",
        ),
        (
            "absurd",
            good.replacen("\"images\": 8000", "\"images\": 1000000000000000000", 1),
            "images",
        ),
        ("policy", good.replacen("frostline", "fastest", 1), "hapi-lp"),
        ("cut", good[..200].to_owned(), "EOF"),
    ];
    for (name, text, words) in cases {
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        let output = frostline(&["admin", "simulate", file.to_str().unwrap()]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains(words), "{name}: {said}");
    }
}

/// A folder with the events of a job of one epoch.
fn ended_run(folder: &Path, name: &str) -> PathBuf {
    let run = folder.join(name);
    std::fs::create_dir(&run).unwrap();
    let epoch = serde_json::json!({"event": "epoch", "epoch": 1, "loss": 0.5, "validation_accuracy": 0.75, "bytes_received": 9, "seconds": 1.0,
        "waited_seconds": 0.5, "split": "none", "skipped": 0, "at": 2.0});
    std::fs::write(run.join("events.jsonl"), format!("{epoch}\n")).unwrap();
    run
}

#[test]
fn a_report_is_written_into_the_runs_folder_and_a_comparison_where_it_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let runs = ["first", "second"].map(|name| ended_run(folder.path(), name));
    let [first, second] = runs.each_ref().map(|run| run.to_str().unwrap());
    let output = frostline(&["report", first]);
    assert!(output.status.success(), "{output:?}");
    let page = runs[0].join("report.html");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().trim_end(),
        page.to_str().unwrap()
    );
    assert!(std::fs::read_to_string(page).unwrap().contains("75.0 %"));

    let nowhere = frostline(&["report", first, second]);
    assert!(!nowhere.status.success());
    assert!(String::from_utf8(nowhere.stderr).unwrap().contains("--out FILE"));

    let target = folder.path().join("both.html");
    let output = frostline(&[
        "report",
        first,
        second,
        "--json",
        "--out",
        target.to_str().unwrap(),
    ]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["report"], target.to_str().unwrap());
    assert_eq!(said["runs"], serde_json::json!(["first", "second"]));
    assert_eq!(said["bytes"], std::fs::metadata(&target).unwrap().len());
    // Nothing is left beside it.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_broken_run_is_named_by_file_and_line_and_leaves_no_report() {
    let folder = tempfile::tempdir().unwrap();
    let run = ended_run(folder.path(), "run");
    std::fs::write(run.join("events.jsonl"), "{\"event\":\"warning\"}\n{oh\n").unwrap();
    let output = frostline(&["report", run.to_str().unwrap()]);
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && words.contains("events.jsonl, line 2, is broken"),
        "{words}"
    );
    assert!(!run.join("report.html").exists());
}
