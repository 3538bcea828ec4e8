//! What fine-tuning a trained network on photos reaches, and whether the exported model gives the same in Python.

use crate::few;
use crate::photos::Pretrained;
use crate::report::Report;
use crate::run::{frostline, json_lines, series, shared, text};
use crate::training::torch;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What can be run alone.
pub(crate) const PARTS: [&str; 3] = ["tuned", "torch", "few"];

const SEEDS: usize = 3;

/// torchvision's two transforms of training photos, as its references for classification have them.
const AUGMENTED: [&str; 2] = ["--random-resized-crop", "--hflip"];

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let (photos, pretrained) = (report.photos(), Pretrained::find());
    let task = Task {
        pretrained: &pretrained,
        data: photos.root(),
        epochs: if report.quick() { "5" } else { "20" },
    };
    if report.has("tuned") {
        tuned(report, &task)?;
    }
    if report.has("torch") {
        against_torch(report, &task)?;
    }
    if report.has("few") {
        few::run(report)?;
    }
    Ok(())
}

/// Heads by themselves, and the same models in Python.
fn tuned(report: &mut Report, task: &Task<'_>) -> Result<()> {
    let Task {
        pretrained,
        data,
        epochs,
    } = *task;
    // Beside a Gemm head on pooled features, the original with its Conv head.
    let original = shared("data/squeezenet1_1.onnx").map(|file| ("squeezenet1_1", file, "52"));
    let jobs = [(pretrained.name, pretrained.file.clone(), pretrained.freeze)];
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
            "--runs",
            text(folder.path())?,
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

/// What is trained, from which cut, and whether training photos are augmented.
struct Way {
    name: &'static str,
    freeze: &'static str,
    augmented: bool,
}

/// What both sides train on.
struct Task<'a> {
    pretrained: &'a Pretrained,
    data: &'a Path,
    epochs: &'a str,
}

/// The same recipe by PyTorch: means over seeds, of which a quick run has one.
fn against_torch(report: &mut Report, task: &Task<'_>) -> Result<()> {
    let way = |name, freeze, augmented| Way {
        name,
        freeze,
        augmented,
    };
    let (head, block) = (task.pretrained.freeze, task.pretrained.last_block);
    let ways = [
        way("head", head, false),
        way("last_block", block, false),
        way("augmented", block, true),
    ];
    let seeds = if report.quick() { 1 } else { SEEDS };
    let python = torch(&["--vision"])?;
    println!(
        "\n{:<12} {:>10} {:>10}   by seed",
        "trained", "Frostline", "PyTorch"
    );
    for way in ways {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for seed in 0..seeds {
            ours.push(task.ours(&way, &seed.to_string())?);
            theirs.push(task.by_torch(&python, &way, &seed.to_string())?);
        }
        let (our, their) = (mean(&ours), mean(&theirs));
        println!(
            "{:<12} {our:>10.3} {their:>10.3}   {ours:.3?} {theirs:.3?}",
            way.name
        );
        report.set(&format!("{}_accuracy", way.name), our);
        report.set(&format!("{}_accuracy_pytorch", way.name), their);
        report.set(&format!("{}_accuracy_difference", way.name), our - their);
    }
    Ok(())
}

impl Task<'_> {
    /// What both take.
    fn arguments<'a>(&'a self, way: &Way, seed: &'a str) -> Result<Vec<&'a str>> {
        Ok(vec![
            "--model",
            text(&self.pretrained.file)?,
            "--data",
            text(self.data)?,
            "--freeze",
            way.freeze,
            "--epochs",
            self.epochs,
            "--seed",
            seed,
        ])
    }

    /// Validation accuracy after the last epoch.
    fn ours(&self, way: &Way, seed: &str) -> Result<f64> {
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("tuned.onnx");
        let mut arguments = vec!["train", "--out", text(&out)?, "--runs", text(folder.path())?];
        // As the peer does.
        arguments.extend(["--keep", "last"]);
        arguments.extend(self.arguments(way, seed)?);
        if way.augmented {
            arguments.extend(AUGMENTED);
        }
        let events = frostline(&arguments)?;
        let last = series(&events, "done", "validation_accuracy").last().copied();
        last.context("train printed no accuracy")
    }

    fn by_torch(&self, python: &Path, way: &Way, seed: &str) -> Result<f64> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/fine_tune.py");
        let mut command = Command::new(python);
        command.arg(script).args(self.arguments(way, seed)?);
        if way.augmented {
            command.arg("--augment");
        }
        let printed = json_lines(&mut command)?;
        number(
            printed.last().context("the PyTorch peer printed nothing")?,
            "accuracy",
        )
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
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
