//! Tests reports of finished runs.

use super::frostline;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Creates the folder of a run with a single epoch.
fn ended_run(folder: &Path, name: &str) -> PathBuf {
    let run = folder.join(name);
    std::fs::create_dir(&run).unwrap();
    let epoch = serde_json::json!({"event": "epoch", "epoch": 1, "loss": 0.5, "validation_accuracy": 0.75, "bytes_received": 9,
        "validation_bytes_received": 0, "seconds": 1.0, "waited_seconds": 0.5, "split": "none", "skipped": 0, "cached_rows": 0, "fetched_rows": 3,
        "at": 2.0});
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
    // No temporary file remains.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_broken_run_is_named_by_file_and_line_and_leaves_no_report() {
    let folder = tempfile::tempdir().unwrap();
    let run = ended_run(folder.path(), "run");
    std::fs::write(
        run.join("events.jsonl"),
        "{\"event\":\"warning\",\"message\":\"oh\"}\n{oh\n",
    )
    .unwrap();
    let output = frostline(&["report", run.to_str().unwrap()]);
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && words.contains("events.jsonl, line 2"),
        "{words}"
    );
    assert!(!run.join("report.html").exists());
}
