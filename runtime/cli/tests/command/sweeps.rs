//! Tests sweeps with failures and interruptions, whose results are still written.

use super::runs::signaled;
use super::{backbone, repository};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns a sweep that needs a few seconds for each variant. Runs are written to `folder` and the best model
/// to `folder/best.onnx`.
fn sweep(folder: &Path, more: &[&str]) -> Command {
    let photos = repository("models/zoo/demo/photos");
    let mut command = Command::new(env!("CARGO_BIN_EXE_frostline"));
    command.args(["train", "--json", "--model", &backbone(), "--freeze", "features"]);
    command.args([
        "--data",
        photos.to_str().unwrap(),
        "--batch",
        "16",
        "--split",
        "features",
    ]);
    command.args([
        "--lr-scheduler",
        "constant",
        "--warmup-ratio",
        "0",
        "--momentum",
        "0",
    ]);
    command
        .arg("--runs")
        .arg(folder)
        .arg("--out")
        .arg(folder.join("best.onnx"));
    command.args(more);
    command
}

/// Returns `frostline train --json` in the working directory `folder`.
fn frostline(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frostline"));
    command.current_dir(folder).args(["train", "--json"]);
    command
}

fn events(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the error, which follows the warnings.
fn failure(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// Returns the result of a sweep, and checks that the model and the report exist.
fn swept(events: &[Value]) -> &Value {
    let sweep = events.last().unwrap();
    assert_eq!(sweep["event"], "sweep", "{sweep}");
    for file in ["model", "report"] {
        assert!(Path::new(sweep[file].as_str().unwrap()).is_file(), "{sweep}");
    }
    sweep
}

#[test]
fn a_variant_that_fails_leaves_the_others_their_model_and_report() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = sweep(folder.path(), &["--epochs", "2", "--sweep", "lr=0.05,0.04"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    let mut told = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if event["variant"] == "lr=0.05" {
            // A folder at the path of the model prevents writing.
            std::fs::create_dir_all(Path::new(event["run"].as_str().unwrap()).join("tuned.onnx")).unwrap();
        }
        told.push(event);
    }
    let output = child.wait_with_output().unwrap();
    let said = failure(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said["error"].as_str().unwrap().contains("variant lr=0.05 failed"),
        "{said}"
    );
    let sweep = swept(&told);
    assert_eq!(
        (&sweep["best"], &sweep["variants"][0]["state"]),
        (&"lr=0.04".into(), &"failed".into())
    );
}

#[test]
fn a_sweep_without_an_output_file_resumes_with_the_printed_command() {
    let folder = tempfile::tempdir().unwrap();
    let photos = repository("models/zoo/demo/photos");
    let mut command = frostline(folder.path());
    command.args(["--model", &backbone(), "--freeze", "features", "--batch", "16"]);
    command.args(["--split", "features", "--epochs", "2", "--runs", "runs"]);
    command.args(["--lr-scheduler", "constant", "--warmup-ratio", "0"]);
    command.args(["--data", photos.to_str().unwrap(), "--sweep", "lr=0.05,0.04"]);
    let (output, _) = signaled(command, "-INT", |event| event["event"] == "epoch");
    let said = failure(&output);
    let printed = said["next"][0]["run"].as_array().unwrap().iter();
    let printed: Vec<&str> = printed.map(|word| word.as_str().unwrap()).collect();
    let [.., "--resume", sweep] = printed[..] else {
        panic!("{said}");
    };
    let resume = |more: &[&str]| {
        let mut command = frostline(folder.path());
        command.args(["--resume", sweep]).args(more).output().unwrap()
    };
    let second = folder.path().join(sweep).join("lr=0.04");

    let shown = resume(&["--dry-run"]);
    assert_eq!(events(&shown)[0]["recipe"]["epochs"], 2, "{shown:?}");
    let text = |output: &Output| failure(output)["error"].as_str().unwrap().to_owned();
    for (change, words) in [
        (["--epochs", "1"], "epochs is 1, the sweep has 2"),
        (["--seed", "5"], "seed is 5, the sweep has 0"),
    ] {
        let refused = text(&resume(&change));
        assert!(refused.contains(words), "{refused}");
    }
    assert!(!second.exists());

    let resumed = resume(&[]);
    assert!(resumed.status.success(), "{resumed:?}");
    let told = events(&resumed);
    let rows = told.last().unwrap()["variants"].as_array().unwrap();
    assert!(
        rows.len() == 2 && rows.iter().all(|row| row["state"] == "finished"),
        "{rows:?}"
    );
    assert!(second.join("tuned.onnx").is_file());
    // Finished variants would keep the earlier model as well.
    let sweep = second.with_file_name("sweep.json");
    let recorded = std::fs::read_to_string(&sweep).unwrap();
    let hash = serde_json::from_str::<Value>(&recorded).unwrap()["job"]["model_sha256"].clone();
    std::fs::write(&sweep, recorded.replace(hash.as_str().unwrap(), "another")).unwrap();
    let refused = text(&resume(&[]));
    assert!(refused.contains("the model is 'backbone'"), "{refused}");
}

mod long {
    use super::*;

    #[test]
    fn a_variant_that_diverges_late_has_its_best_epoch_and_the_others_go_on() {
        let folder = tempfile::tempdir().unwrap();
        // Each step subtracts three times the weight, so weights double and change their signs regardless of
        // the data.
        let more = ["--lr", "0.01", "--epochs", "40", "--sweep", "weight_decay=300,0"];
        let output = sweep(folder.path(), &more)
            .args(["--patience", "40"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let events = events(&output);
        let rows = swept(&events)["variants"].as_array().unwrap();
        let states: Vec<_> = rows.iter().map(|row| row["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["diverged", "finished"]);
        assert!(
            rows[0]["epoch"].as_u64().unwrap() >= 1 && rows[0]["accuracy"].is_number(),
            "{rows:?}"
        );
        let at_once = ["--lr", "1e9", "--epochs", "2", "--sweep", "seed=0,1"];
        let none = sweep(folder.path(), &at_once).output().unwrap();
        let said = failure(&none);
        assert!(
            said["error"]
                .as_str()
                .unwrap()
                .contains("no variant produced a model"),
            "{said}"
        );
    }

    #[test]
    fn a_sweep_that_is_interrupted_comes_to_the_best_so_far() {
        let folder = tempfile::tempdir().unwrap();
        let command = sweep(folder.path(), &["--epochs", "3", "--sweep", "lr=0.05,0.04,0.03"]);
        let (output, told) = signaled(command, "-INT", |event| event["variant"] == "lr=0.04");
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        let said = failure(&output);
        assert_eq!(said["kind"], "interrupted");
        assert!(
            said["error"].as_str().unwrap().contains("of 3 variants"),
            "{said}"
        );
        let rows = swept(&told)["variants"].as_array().unwrap();
        let states: Vec<_> = rows.iter().map(|row| row["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["finished", "interrupted"]);

        // `--resume` continues the sweep without training the finished variant again.
        let mut command = Command::new(env!("CARGO_BIN_EXE_frostline"));
        let resumed = command
            .args(["train", "--json", "--resume", "--runs"])
            .arg(folder.path())
            .output();
        let resumed = resumed.unwrap();
        assert!(resumed.status.success(), "{resumed:?}");
        let told = events(&resumed);
        let begun: Vec<_> = told.iter().filter(|event| event["event"] == "variant").collect();
        assert_eq!(begun.len(), 2, "{begun:?}");
        let again = swept(&told)["variants"].as_array().unwrap();
        assert!(
            again.iter().all(|row| row["state"] == "finished") && again.len() == 3,
            "{again:?}"
        );
        assert_eq!(again[0]["accuracy"], rows[0]["accuracy"]);

        // The runs are listed and can be combined in a report.
        let run = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_frostline"));
            command.args(words).output().unwrap()
        };
        let runs = folder.path().to_str().unwrap();
        let listed = run(&["runs", runs, "--json"]);
        let names: Vec<String> = events(&listed)
            .iter()
            .map(|run| run["name"].to_string())
            .collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(
            names.iter().all(|name| name.contains("-sweep/lr=0.0")),
            "{names:?}"
        );
        let sweep = swept(&told)["report"]
            .as_str()
            .unwrap()
            .replace("report.html", "");
        let report = run(&[
            "report",
            &sweep,
            "--json",
            "--out",
            folder.path().join("all.html").to_str().unwrap(),
        ]);
        assert_eq!(
            events(&report)[0]["runs"].as_array().unwrap().len(),
            3,
            "{report:?}"
        );
        assert_eq!(run(&["runs", "nosuch"]).status.code(), Some(1));
    }
}
