//! Tests of formats for other programs.

use crate::sample::Sample;
use frostline_report::{Run, metrics_csv, tensorboard};
use serde_json::Value;
use std::process::Command;

#[test]
fn metrics_are_a_table_by_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    let text = "\
        {\"event\":\"epoch\",\"epoch\":1,\"loss\":0.5,\"validation_accuracy\":0.25,\"bytes_received\":10,\"validation_bytes_received\":4,\
        \"seconds\":2.5,\"waited_seconds\":1.0,\"split\":\"a,\\\"b\\\"\",\"skipped\":0,\"cached_rows\":0,\"fetched_rows\":8,\"at\":3}\n\
        {\"event\":\"epoch\",\"epoch\":2,\"loss\":null,\"validation_accuracy\":0.75,\"bytes_received\":0,\"validation_bytes_received\":0,\"seconds\":0.5,\"waited_seconds\":0.0,\
        \"split\":\"none\",\"skipped\":1,\"cached_rows\":7,\"fetched_rows\":1,\"at\":4}\n";
    std::fs::write(run.join("events.jsonl"), text).unwrap();
    assert_eq!(
        metrics_csv(&Run::read(run).unwrap()),
        "epoch,loss,validation_accuracy,seconds,waited_seconds,bytes,split,cached_rows,fetched_rows,skipped\n\
         1,0.5,0.25,2.5,1,10,\"a,\"\"b\"\"\",0,8,0\n\
         2,,0.75,0.5,0,0,none,7,1,1\n"
    );
}

/// Prints the scalars that TensorBoard finds in a folder: `{tag: [[step, value, wall time], ..]}`.
const READER: &str = "
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
found = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0})
found.Reload()
print(json.dumps({tag: [[e.step, e.value, e.wall_time] for e in found.Scalars(tag)] for tag in found.Tags()['scalars']}))
";

#[test]
fn tensorboard_reads_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let sample = Sample::clothing();
    let run = sample.write(folder.path(), "run");
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let file = logs.join("events.out.tfevents.0.run");
    std::fs::write(&file, tensorboard(&Run::read(&run).unwrap())).unwrap();
    let output = Command::new("python3")
        .args(["-c", READER])
        .arg(&logs)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert!(!words.contains("DataLoss") && !words.contains("rror"), "{words}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = u64::from(sample.epochs) * sample.steps;
    let series = |tag: &str| {
        found[tag]
            .as_array()
            .unwrap_or_else(|| panic!("{tag}: {found}"))
            .clone()
    };
    assert_eq!(series("step/loss").len() as u64, steps);
    let accuracy = series("validation/accuracy");
    assert_eq!(accuracy.len() as u32, sample.epochs + 1);
    assert_eq!(accuracy.first().unwrap()[0], 0);
    assert_eq!(accuracy.last().unwrap()[0], steps);
    assert_eq!(series("epoch/loss")[0][0], sample.steps);
    for tag in [
        "epoch/images_per_second",
        "epoch/cached_rows",
        "step/waited_seconds",
    ] {
        series(tag);
    }
    // Values match the events in single precision, and times match except for the start time.
    let events = std::fs::read_to_string(run.join("events.jsonl")).unwrap();
    let events = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told: Vec<Value> = events.filter(|event| event["event"] == "step").collect();
    let loss = series("step/loss");
    let first = loss[0][2].as_f64().unwrap() - told[0]["at"].as_f64().unwrap();
    for (event, point) in told.iter().zip(&loss) {
        assert_eq!(point[0], event["step"]);
        assert_eq!(
            point[1].as_f64().unwrap() as f32,
            event["loss"].as_f64().unwrap() as f32
        );
        let at = point[2].as_f64().unwrap() - event["at"].as_f64().unwrap();
        assert!((at - first).abs() < 1e-3);
    }
}
