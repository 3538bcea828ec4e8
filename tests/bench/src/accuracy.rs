//! What fine-tuning SqueezeNet 1.1 on the real photos reaches, and whether the exported model gives the same in Python.

use crate::report::Report;
use crate::run::{frostline, json_lines, series, shared, text};
use anyhow::{Context, Result};
use serde_json::Value;
use std::process::Command;

/// Model file and freeze cut: a Gemm head on pooled features, and the original with its Conv head.
const JOBS: [(&str, &str); 2] = [("squeezenet1_1_pooled", "features"), ("squeezenet1_1", "52")];

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let epochs = if report.quick() { "5" } else { "20" };
    let data = shared("data/clothing")?;
    println!(
        "{:<22} {:<10} {:>8} {:>8} {:>8} {:>14} {:>8}",
        "model", "freeze", "before", "after", "eval", "Python differs", "seconds"
    );
    for (model, freeze) in JOBS {
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("tuned.onnx");
        let file = shared(&format!("data/{model}.onnx"))?;
        let events = frostline(&[
            "train",
            "--model",
            text(&file)?,
            "--data",
            text(&data)?,
            "--freeze",
            freeze,
            "--epochs",
            epochs,
            "--out",
            text(&out)?,
        ])?;
        let last = |event: &str, key: &str| series(&events, event, key).last().copied().unwrap_or(f64::NAN);
        let evaluated = frostline(&["eval", "--model", text(&out)?, "--data", text(&data)?])?;
        let evaluated = evaluated
            .last()
            .and_then(|value| value.get("accuracy")?.as_f64())
            .context("eval printed no accuracy")?;
        let python = python(text(&out)?, text(&data)?)?;
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
