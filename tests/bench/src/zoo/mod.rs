//! Common classifiers, exported by both torch exporters: trains each from several cuts to find out which
//! work.

mod fill;
mod pushdown;
mod verdict;

pub(crate) use fill::filled;

use crate::report::{Report, commit, folder};
use crate::training::torch;
use anyhow::{Context, Result, bail};
use frostline_graph::Model;
use serde_json::{Map, Value};
use std::io::stderr;
use std::path::{Path, PathBuf};
use std::process::Command;
use verdict::{TRAINED, Verdict};

/// Parts that can run separately.
pub(crate) const PARTS: [&str; 2] = ["command", "pushdown"];
/// Networks for quick runs. Includes modern convolutional networks, a transformer, and a multilayer
/// perceptron.
const QUICK: &[&str] = &[
    "mlp_on_features",
    "mobilenet_v3_small",
    "timm_convnext_atto",
    "timm_vit_tiny",
];

/// Trains every file from the head, the last block and the input (part `command`), compares the changed
/// weights with the ones that PyTorch trains, and divides every network at several blocks (part `pushdown`).
/// Results for a file are reused at the same commit, so an interrupted run can be continued.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    if report.has("command") {
        command(report)?;
    }
    if report.has("pushdown") {
        pushdown::run(report)?;
    }
    Ok(())
}

fn command(report: &mut Report) -> Result<()> {
    let zoo = folder()?.join("zoo");
    let files = files(&zoo, report.quick())?;
    println!("{:<44} {}", "network, exporter, opset", TRAINED.join(", "));
    let (mut trained, mut total) = (0, 0);
    for file in &files {
        let verdicts = remembered(&zoo, file)?;
        let name = stem(file);
        let shown: Vec<String> = verdicts.iter().map(|(_, verdict)| verdict.short()).collect();
        println!("{name:<44} {}", shown.join(", "));
        for (part, verdict) in &verdicts {
            if let Verdict::Fails(why) = verdict {
                println!("    {part}: {why}");
            }
            trained += usize::from(verdict.trains());
            total += 1;
            report.set(&format!("{name}_{part}"), verdict.description());
        }
    }
    println!("\n{trained} of {total} train");
    report.set("command_trained", trained);
    report.set("command_total", total);
    Ok(())
}

/// Returns the exported files. Exports the networks if the folder is empty. The result does not contain
/// networks rejected by an exporter.
fn files(zoo: &Path, quick: bool) -> Result<Vec<PathBuf>> {
    let list = || -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(zoo)? {
            let path = entry?.path();
            let wanted = !quick
                || QUICK
                    .iter()
                    .any(|name| stem(&path).starts_with(&format!("{name}.")));
            if wanted && path.extension().is_some_and(|extension| extension == "onnx") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    };
    std::fs::create_dir_all(zoo)?;
    if list()?.is_empty() {
        export(zoo, quick)?;
    }
    list()
}

fn export(zoo: &Path, quick: bool) -> Result<()> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/zoo/classifiers.py");
    let mut command = Command::new(torch(&["--trainers", "--zoo"])?);
    command.arg(script).args(if quick { QUICK } else { &[] });
    let status = command.arg("--out").arg(zoo).stdout(stderr()).status();
    let status = status.context("cannot start PyTorch's interpreter")?;
    if !status.success() {
        bail!("cannot export the zoo ({status}); see its output above");
    }
    Ok(())
}

fn stem(file: &Path) -> String {
    file.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Returns the stored verdicts for `file` at this commit. Missing verdicts are measured, and stored if the
/// commit is known.
fn remembered(zoo: &Path, file: &Path) -> Result<Vec<(&'static str, Verdict)>> {
    let results = zoo.join("results");
    let note = results.join(format!("{}.{}.json", stem(file), commit()));
    let mut noted: Map<String, Value> = match std::fs::read(&note) {
        Ok(bytes) => serde_json::from_slice(&bytes)?,
        Err(_) => Map::new(),
    };
    let mut verdicts = Vec::new();
    let mut model = None;
    for part in TRAINED {
        if let Some(known) = noted.get(part) {
            verdicts.push((part, Verdict::deserialized(known)?));
            continue;
        }
        let read = || {
            Model::read(file)
                .map_err(anyhow::Error::from)
                .and_then(fill::filled)
        };
        let verdict = Verdict::check(model.get_or_insert_with(read), part);
        if !commit().is_empty() {
            noted.insert(part.to_owned(), verdict.serialized());
            std::fs::create_dir_all(&results)?;
            std::fs::write(&note, serde_json::to_vec(&noted)?)?;
        }
        verdicts.push((part, verdict));
    }
    Ok(verdicts)
}
