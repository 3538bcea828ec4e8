//! What each split costs: the same job with the split at the raw objects, the pixels, two inner cuts and the freeze cut.

use crate::photos::{Photos, Pretrained};
use crate::report::{Report, median};
use crate::run::{binary, frostline, series, text};
use anyhow::{Context, Result};
use frostline_e2e::{HostProcess, Link};
use serde_json::Value;

const SLOW_MBIT: u64 = 20;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let epochs = if report.quick() { 1 } else { 3 };
    let (pretrained, photos) = (Pretrained::find(), report.photos());
    let [first, second] = pretrained.inner;
    let splits = ["none", "input", first, second, pretrained.freeze];
    let train = |split: &&str, epochs, mbit| train(&pretrained, &photos, split, epochs, mbit);
    let free = splits
        .iter()
        .map(|split| train(split, epochs, None))
        .collect::<Result<Vec<_>>>()?;
    let slow_epochs = if report.quick() { 1 } else { 2 };
    let slow = splits
        .iter()
        .map(|split| train(split, slow_epochs, Some(SLOW_MBIT)))
        .collect::<Result<Vec<_>>>()?;
    let reference = series(free.last().context("no split was run")?, "step", "loss");

    println!(
        "{} frozen at {}, {}, batch 64",
        pretrained.name,
        pretrained.freeze,
        photos.root().display()
    );
    println!(
        "{:<10} {:>14} {:>12} {:>16} {:>14}",
        "split",
        "MB an epoch",
        "s free",
        format!("s {SLOW_MBIT} Mbit/s"),
        "loss differs"
    );
    let mut largest: f64 = 0.0;
    for ((split, free), slow) in splits.iter().zip(&free).zip(&slow) {
        let bytes = median(&series(free, "epoch", "bytes_received"));
        let seconds = median(&series(free, "epoch", "seconds"));
        let slow_seconds = median(&series(slow, "epoch", "seconds"));
        let difference = largest_difference(&series(free, "step", "loss"), &reference);
        largest = largest.max(difference);
        println!(
            "{split:<10} {:>14.2} {seconds:>12.2} {slow_seconds:>16.2} {difference:>14.1e}",
            bytes / 1e6
        );
        report.set(&format!("{split}_bytes_per_epoch"), bytes);
        report.set(&format!("{split}_seconds_free"), seconds);
        report.set(&format!("{split}_seconds_slow"), slow_seconds);
        report.set(&format!("{split}_loss_difference"), difference);
    }
    report.set("largest_loss_difference", largest);
    Ok(())
}

/// The events of one job against a host of its own, over a link of `mbit` or as fast as it goes.
fn train(
    pretrained: &Pretrained,
    photos: &Photos,
    split: &str,
    epochs: u32,
    mbit: Option<u64>,
) -> Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    let data = text(photos.root())?;
    let host = HostProcess::start(&binary()?, folder.path(), data, &[])?;
    let link = Link::open(host.address(), mbit.map(|mbit| mbit * 1_000_000))?;
    let out = folder.path().join("tuned.onnx");
    frostline(&[
        "train",
        "--model",
        text(&pretrained.file)?,
        "--data",
        data,
        "--freeze",
        pretrained.freeze,
        "--split",
        split,
        "--epochs",
        &epochs.to_string(),
        "--out",
        text(&out)?,
        "--host",
        &link.url(),
        "--token-file",
        text(host.token_file())?,
    ])
}

fn largest_difference(losses: &[f64], reference: &[f64]) -> f64 {
    if losses.len() != reference.len() {
        return f64::INFINITY;
    }
    losses
        .iter()
        .zip(reference)
        .map(|(loss, reference)| (loss - reference).abs())
        .fold(0.0, f64::max)
}
