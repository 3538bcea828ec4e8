//! Accuracy after fine-tuning a pretrained network on photos, and agreement of the exported model's
//! predictions in Python.

use crate::few;
use crate::photos::Pretrained;
use crate::report::Report;
use crate::run::{frostline, last_number, last_object, number, shared, text, train};
use crate::training::torch;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Parts that can run separately.
pub(crate) const PARTS: [&str; 3] = ["tuned", "torch", "few"];

const SEEDS: usize = 3;

/// The two transforms for training photos in torchvision's classification references.
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

/// Trains only heads, and evaluates the resulting models in Python as well.
fn tuned(report: &mut Report, task: &Task<'_>) -> Result<()> {
    let Task {
        pretrained,
        data,
        epochs,
    } = *task;
    // In addition to a Gemm head on pooled features, the original network with a Conv head.
    let original = shared("data/squeezenet1_1.onnx").map(|file| ("squeezenet1_1", file, "52"));
    let jobs = [(pretrained.name, pretrained.file.clone(), pretrained.freeze)];
    println!(
        "{:<22} {:<10} {:>8} {:>8} {:>8} {:>14} {:>8}",
        "model", "freeze", "before", "after", "eval", "Python differs", "seconds"
    );
    for (model, file, freeze) in jobs.into_iter().chain(original) {
        let folder = tempfile::tempdir()?;
        let events = train(&file, data, freeze, folder.path(), &["--epochs", epochs])?;
        let out = folder.path().join("tuned.onnx");
        let evaluated = frostline(&["eval", "--model", text(&out)?, "--data", text(data)?])?;
        let evaluated = number(evaluated.last().context("eval printed nothing")?, "accuracy")?;
        let python = python(text(&out)?, text(data)?)?;
        let before = last_number(&events, "baseline", "validation_accuracy")?;
        let accuracy = last_number(&events, "done", "validation_accuracy")?;
        let seconds = last_number(&events, "done", "seconds")?;
        let samples = number(&python, "samples")?;
        let differs = ((number(&python, "accuracy")? - accuracy) * samples)
            .abs()
            .round();
        println!(
            "{model:<22} {freeze:<10} {before:>8.3} {accuracy:>8.3} {evaluated:>8.3} {differs:>7} photos {seconds:>8.1}"
        );
        report.set(&format!("{model}_accuracy"), accuracy);
        report.set(&format!("{model}_eval_accuracy"), evaluated);
        report.set(&format!("{model}_python_differs_photos"), differs);
        report.set(&format!("{model}_seconds"), seconds);
    }
    Ok(())
}

/// A freeze cut with optional augmentation of training photos.
struct Way {
    name: &'static str,
    freeze: &'static str,
    augmented: bool,
}

/// Task of both sides.
struct Task<'a> {
    pretrained: &'a Pretrained,
    data: &'a Path,
    epochs: &'a str,
}

/// Compares means over several seeds with PyTorch and the same recipe. Quick runs use one seed.
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
    /// Returns the validation accuracy after the last epoch.
    fn ours(&self, way: &Way, seed: &str) -> Result<f64> {
        let folder = tempfile::tempdir()?;
        // Like the PyTorch script.
        let mut flags = vec!["--keep", "last", "--epochs", self.epochs, "--seed", seed];
        if way.augmented {
            flags.extend(AUGMENTED);
        }
        let file = &self.pretrained.file;
        let events = train(file, self.data, way.freeze, folder.path(), &flags)?;
        last_number(&events, "done", "validation_accuracy")
    }

    fn by_torch(&self, python: &Path, way: &Way, seed: &str) -> Result<f64> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/fine_tune.py");
        let mut command = Command::new(python);
        command.arg(script).arg("--model").arg(&self.pretrained.file);
        command.args(["--freeze", way.freeze, "--epochs", self.epochs, "--seed", seed]);
        command.arg("--data").arg(self.data);
        if way.augmented {
            command.arg("--augment");
        }
        number(&last_object(&mut command)?, "accuracy")
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Evaluates a model on photos with onnxruntime and Pillow in Python.
fn python(model: &str, data: &str) -> Result<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/zoo/evaluate.py");
    last_object(Command::new("python3").args([script, "--model", model, "--data", data]))
}
