//! What fine-tuning a trained network on photos reaches, and whether the exported model gives the same in Python.

use crate::photos::Pretrained;
use crate::report::Report;
use crate::run::{frostline, json_lines, series, shared, text};
use anyhow::{Context, Result};
use serde_json::Value;
use std::process::Command;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let epochs = if report.quick() { "5" } else { "20" };
    let (photos, pretrained) = (report.photos(), Pretrained::find());
    let data = photos.root();
    // Beside a Gemm head on pooled features, the original with its Conv head.
    let original = shared("data/squeezenet1_1.onnx").map(|file| ("squeezenet1_1", file, "52"));
    let jobs = [(pretrained.name, pretrained.file, pretrained.freeze)];
    println!(
        "{:<22} {:<10} {:>8} {:>8} {:>8} {:>14} {:>8}",
        "model", "freeze", "before", "after", "eval", "Python differs", "seconds"
    );
    for (model, file, freeze) in jobs.into_iter().chain(original) {
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("tuned.onnx");
        let events = frostline(&[
            "train",
            "--model",
            text(&file)?,
            "--data",
            text(data)?,
            "--freeze",
            freeze,
            "--epochs",
            epochs,
            "--out",
            text(&out)?,
        ])?;
        let last = |event: &str, key: &str| series(&events, event, key).last().copied().unwrap_or(f64::NAN);
        let evaluated = frostline(&["eval", "--model", text(&out)?, "--data", text(data)?])?;
        let evaluated = evaluated
            .last()
            .and_then(|value| value.get("accuracy")?.as_f64())
            .context("eval printed no accuracy")?;
        let python = python(text(&out)?, text(data)?)?;
        let (accuracy, seconds) = (last("done", "validation_accuracy"), last("done", "seconds"));
        let samples = number(&python, "samples")?;
        let differs = ((number(&python, "accuracy")? - accuracy) * samples)
            .abs()
            .round();
        println!(
            "{model:<22} {freeze:<10} {:>8.3} {accuracy:>8.3} {evaluated:>8.3} {differs:>7} photos {seconds:>8.1}",
            last("baseline", "validation_accuracy")
        );
        report.set(&format!("{model}_accuracy"), accuracy);
        report.set(&format!("{model}_eval_accuracy"), evaluated);
        report.set(&format!("{model}_python_differs_photos"), differs);
        report.set(&format!("{model}_seconds"), seconds);
    }
    Ok(())
}

/// The same model and photos by Python's onnxruntime and Pillow.
fn python(model: &str, data: &str) -> Result<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/zoo/evaluate.py");
    let printed = json_lines(Command::new("python3").args([script, "--model", model, "--data", data]))?;
    printed
        .into_iter()
        .next_back()
        .context("the Python check printed nothing")
}

fn number(value: &Value, key: &str) -> Result<f64> {
    value
        .get(key)
        .and_then(Value::as_f64)
        .with_context(|| format!("the Python check printed no {key}"))
}
