//! Tests of incomplete and malformed run folders.

use crate::sample::Sample;
use frostline_report::{ReportError, Run, html, metrics_csv, tensorboard};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn run() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let run = Sample::clothing().write(folder.path(), "run");
    (folder, run)
}

fn append(file: &Path, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().append(true).open(file).unwrap();
    file.write_all(bytes).unwrap();
}

/// Returns the file, the line and the reason of an error.
fn refused(run: &Path) -> (String, u64, String) {
    match Run::read(run) {
        Err(ReportError::Broken { file, line, reason }) => (
            file.file_name().unwrap().to_str().unwrap().to_owned(),
            line,
            reason,
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for of in [folder.path().to_owned(), folder.path().join("none")] {
        let error = Run::read(&of).unwrap_err();
        assert!(matches!(&error, ReportError::NoRun { folder } if *folder == of));
        assert!(error.to_string().contains("is not a run folder"), "{error}");
    }
}

#[test]
fn events_alone_are_a_run() {
    let (_folder, run) = run();
    for file in ["config.json", "plan.json", "predictions.csv"] {
        fs::remove_file(run.join(file)).unwrap();
    }
    let run = Run::read(&run).unwrap();
    let page = html(&[run]);
    assert!(page.contains("Curves") && !page.contains("<h2>Plan") && !page.contains("<h2>Classes"));
}

#[test]
fn a_job_that_ended_before_its_first_step_has_a_page_too() {
    let (_folder, run) = run();
    for events in [
        "",
        "{\"event\":\"dataset\",\"task\":\"classes\",\"classes\":[],\"train\":0,\"validation\":0,\"steps_per_epoch\":0,\"epochs\":1}\n",
    ] {
        fs::write(run.join("events.jsonl"), events).unwrap();
        let read = Run::read(&run).unwrap();
        assert!(metrics_csv(&read).starts_with("epoch,loss,"));
        assert!(!tensorboard(&read).is_empty());
        let page = html(&[read]);
        assert!(
            page.contains("still running, or was killed before completing an epoch") && !page.contains("NaN"),
            "{page}"
        );
    }
    for (ending, words) in [
        (
            r#"{"state": "interrupted"}"#,
            "was interrupted before completing an epoch",
        ),
        (
            r#"{"state": "failed", "error": "the loss is not finite"}"#,
            "failed before completing an epoch: the loss is not finite.",
        ),
    ] {
        fs::write(run.join("end.json"), ending).unwrap();
        let page = html(&[Run::read(&run).unwrap()]);
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn a_last_line_that_was_cut_off_is_left_out_wherever_it_was_cut() {
    let (_folder, run) = run();
    let file = run.join("events.jsonl");
    let whole = fs::read(&file).unwrap();
    let ends = whole[..whole.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap();
    let before = {
        fs::write(&file, &whole[..=ends]).unwrap();
        metrics_csv(&Run::read(&run).unwrap())
    };
    for cut in (ends + 1..whole.len()).step_by(7) {
        fs::write(&file, &whole[..cut]).unwrap();
        assert_eq!(metrics_csv(&Run::read(&run).unwrap()), before);
    }
    append(&file, b"\xff\xfe");
    assert!(Run::read(&run).is_ok());
}

#[test]
fn a_broken_line_is_named_with_its_file() {
    let (_folder, run) = run();
    let file = run.join("events.jsonl");
    let lines = fs::read_to_string(&file).unwrap().lines().count() as u64;
    append(&file, b"\n{\"event\":\"step\",\"epoch\":1\n");
    let (name, line, reason) = refused(&run);
    assert_eq!((name.as_str(), line), ("events.jsonl", lines + 2));
    assert!(reason.contains("EOF") && !reason.contains("line 1"), "{reason}");
}

#[test]
fn an_event_that_lacks_a_field_is_named_but_a_strange_one_is_not() {
    let (_folder, run) = run();
    let file = run.join("events.jsonl");
    append(&file, b"{\"event\":\"tomorrow\",\"of\":[1,{}],\"at\":\"x\"}\n");
    assert_eq!(refused(&run).0, "events.jsonl");
    let text = fs::read_to_string(&file)
        .unwrap()
        .replace("\"at\":\"x\"", "\"at\":9e99");
    fs::write(&file, text).unwrap();
    Run::read(&run).unwrap();
    append(
        &file,
        b"{\"event\":\"step\",\"epoch\":1,\"step\":2,\"loss\":0.1,\"at\":1}\n",
    );
    let (_, _, reason) = refused(&run);
    assert!(reason.contains("missing field `split`"), "{reason}");
}

#[test]
fn other_files_name_their_lines_too() {
    let broken = [
        ("config.json", "{\n\"a\": 1,\n]", 3, "key must be a string"),
        ("plan.json", "{\"split\": 3}", 1, "invalid type"),
        (
            "predictions.csv",
            "key,label\n1,2\n",
            1,
            "missing column \"predicted\"",
        ),
        (
            "predictions.csv",
            "key,label,predicted,probability,rank\na,b,c,1,1\na,b,c,1,first\n",
            3,
            "invalid rank \"first\"",
        ),
        (
            "predictions.csv",
            "key,label,predicted\na,b,c\na,b\n",
            3,
            "expected 3 columns, found 2",
        ),
        (
            "predictions.csv",
            "key,label:a,predicted:a,probability:a,label:b,predicted:b\n",
            1,
            "missing column \"probability:b\"",
        ),
        (
            "predictions.csv",
            "key,label:a,predicted:a\nx,1,2\ny,1,much\n",
            3,
            "invalid number \"much\"",
        ),
        ("mistakes/mistakes.json", "[{\"key\":\"a\"}]", 1, "missing field"),
    ];
    for (file, text, line, said) in broken {
        let (_folder, run) = run();
        fs::create_dir_all(run.join("mistakes")).unwrap();
        fs::write(run.join(file), text).unwrap();
        let (name, at, reason) = refused(&run);
        assert!(
            file.ends_with(&name) && at == line && reason.contains(said),
            "{file}: {name}, {at}, {reason}"
        );
    }
}
