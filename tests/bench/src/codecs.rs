//! What each encoding costs and keeps: bytes, speed and error on activations of real photos at up to eight cuts a network, and what
//! it does to the accuracy of a fine-tuned network.

mod activations;

use crate::networks::{NETWORKS, QUICK, exported};
use crate::photos::{Photos, Pretrained};
use crate::report::{Report, median};
use crate::run::{frostline, series, text};
use activations::{Activations, each_cut};
use anyhow::{Context, Result, bail};
use frostline_profile::codec;
use frostline_tensor::Tensor;
use frostline_wire::{ActivationReader, ActivationWriter, Compression, Encoding, Values};
use std::collections::BTreeMap;

/// What every network and cut came to, by encoding.
#[derive(Default)]
struct Totals {
    ratio: Vec<f64>,
    encode: Vec<f64>,
    decode: Vec<f64>,
    worst: f64,
    mean: Vec<f64>,
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let networks = if report.quick() {
        NETWORKS.get(..QUICK).unwrap_or_default()
    } else {
        NETWORKS.as_slice()
    };
    let photos = if report.quick() { 4 } else { 8 };
    let (pretrained, folder) = (Pretrained::find(), report.photos());
    let mut totals = BTreeMap::new();
    println!(
        "MB/s are of f32 activations on one core; errors are shares of a sample's largest (worst) and mean size"
    );
    for network in std::iter::once(&pretrained.name).chain(networks) {
        let file = if *network == pretrained.name {
            pretrained.file.clone()
        } else {
            exported(network)?
        };
        println!(
            "\n{network:<44} {:<10} {:>11} {:>6} {:>8} {:>8} {:>9} {:>9}",
            "encoding", "bytes", "share", "enc MB/s", "dec MB/s", "worst", "mean"
        );
        each_cut(&file, &folder, photos, |at| {
            cut(report, network, &at, &mut totals)
        })?;
    }
    println!("\nall cuts, medians");
    for (encoding, total) in &totals {
        summary(report, encoding, total);
    }
    accuracy(report, &pretrained, &folder)
}

/// Measures one cut in every encoding.
fn cut(
    report: &mut Report,
    network: &str,
    at: &Activations,
    totals: &mut BTreeMap<String, Totals>,
) -> Result<()> {
    let narrow = [Values::F32, Values::F16, Values::Int8];
    let kinds = if at.pixels {
        &[Values::U8]
    } else {
        narrow.as_slice()
    };
    for &values in kinds {
        let (worst, mean) = if values == Values::U8 {
            (0.0, 0.0)
        } else {
            error(&at.rows, Encoding::plain(values))?
        };
        for compression in Compression::ALL {
            let encoding = Encoding { values, compression };
            let encoded = codec(&at.rows, encoding)?;
            let raw = at.f32_bytes()?;
            let rate = |seconds: f64| raw / 1e6 / seconds;
            let (encode, decode) = (
                rate(encoded.encode_seconds_per_sample),
                rate(encoded.decode_seconds_per_sample),
            );
            let share = encoded.bytes_per_sample / raw;
            println!(
                "{:<44} {encoding:<10} {:>11.0} {share:>6.3} {encode:>8.0} {decode:>8.0} {worst:>9.1e} {mean:>9.1e}",
                at.name, encoded.bytes_per_sample
            );
            let key = |what: &str| format!("{network}_{}_{encoding}_{what}", at.name);
            report.set(&key("bytes_per_sample"), encoded.bytes_per_sample);
            report.set(&key("encode_mb_per_second"), encode);
            report.set(&key("decode_mb_per_second"), decode);
            report.set(&key("worst_error"), worst);
            report.set(&key("mean_error"), mean);
            let total = totals.entry(encoding.to_string()).or_default();
            total.ratio.push(share);
            total.encode.push(encode);
            total.decode.push(decode);
            total.worst = total.worst.max(worst);
            total.mean.push(mean);
        }
    }
    Ok(())
}

fn summary(report: &mut Report, encoding: &str, total: &Totals) {
    let (share, encode, decode) = (median(&total.ratio), median(&total.encode), median(&total.decode));
    let mean = median(&total.mean);
    println!(
        "{:<44} {encoding:<10} {:>11} {share:>6.3} {encode:>8.0} {decode:>8.0} {:>9.1e} {mean:>9.1e}",
        "", "", total.worst
    );
    report.set(&format!("{encoding}_share_of_f32"), share);
    report.set(&format!("{encoding}_encode_mb_per_second"), encode);
    report.set(&format!("{encoding}_decode_mb_per_second"), decode);
    report.set(&format!("{encoding}_worst_error"), total.worst);
    report.set(&format!("{encoding}_mean_error"), mean);
}

/// How far the rows are off after a round trip: the largest difference as a share of its sample's largest value, and the mean
/// difference as a share of the mean size of a value.
fn error(rows: &Tensor, encoding: Encoding) -> Result<(f64, f64)> {
    let before = rows.as_f32().context("activations are f32")?;
    let after = round_trip(rows, encoding)?;
    let width = rows.shape().row()?.elements()?;
    let (mut worst, mut sum, mut size) = (0.0_f64, 0.0_f64, 0.0_f64);
    for (before, after) in before.chunks(width).zip(after.chunks(width)) {
        let differences = || before.iter().zip(after).map(|(b, a)| f64::from((b - a).abs()));
        let sizes = || before.iter().map(|value| f64::from(value.abs()));
        worst = worst.max(differences().fold(0.0, f64::max) / sizes().fold(f64::MIN_POSITIVE, f64::max));
        sum += differences().sum::<f64>();
        size += sizes().sum::<f64>();
    }
    Ok((worst, sum / size.max(f64::MIN_POSITIVE)))
}

fn round_trip(rows: &Tensor, encoding: Encoding) -> Result<Vec<f32>> {
    let row = rows.shape().row()?;
    let format = encoding.values.rows(row.dims().to_vec());
    let positions: Vec<u32> = (0..u32::try_from(rows.rows()?)?).collect();
    let mut writer = ActivationWriter::compressed(format.clone(), encoding.compression)?;
    let mut pieces = writer.tensor(&positions, rows.clone())?;
    pieces.extend(writer.finish()?);
    let limit = rows.byte_len() * 2 + (1 << 20);
    let mut reader =
        ActivationReader::new(format, positions.iter().copied(), limit).compressed(encoding.compression);
    let width = row.elements()?;
    let mut after = vec![0.0; rows.rows()? * width];
    for piece in pieces {
        for batch in reader.push(piece)? {
            for row in batch.rows() {
                let row = row?;
                let start = usize::try_from(row.position)? * width;
                let place = after.get_mut(start..start + width).context("a row too many")?;
                if !row.outcome?.read_into(place) {
                    bail!("a row is missing");
                }
            }
        }
    }
    reader.finish()?;
    Ok(after)
}

/// Fine-tunes the trained network on the photos in each encoding, split at its freeze cut and at one before: its accuracy, and how far its
/// losses are from those of f32.
fn accuracy(report: &mut Report, pretrained: &Pretrained, photos: &Photos) -> Result<()> {
    let epochs = if report.quick() { "2" } else { "20" };
    println!(
        "\n{} frozen at {}, {}, {epochs} epochs",
        pretrained.name,
        pretrained.freeze,
        photos.root().display()
    );
    println!(
        "{:<10} {:<10} {:>10} {:>14} {:>14}",
        "split", "encoding", "accuracy", "loss differs", "MB an epoch"
    );
    let [inner, _] = pretrained.inner;
    for split in [pretrained.freeze, inner] {
        let mut reference = Vec::new();
        for encoding in ["f32", "f16", "int8"] {
            let events = train(pretrained, photos, split, encoding, epochs)?;
            let losses = series(&events, "step", "loss");
            if encoding == "f32" {
                reference.clone_from(&losses);
            }
            let pairs = losses.iter().zip(&reference);
            let differs = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            let accuracy = series(&events, "done", "validation_accuracy");
            let accuracy = accuracy.last().copied().context("the job did not end")?;
            let bytes = median(&series(&events, "epoch", "bytes_received"));
            println!(
                "{split:<10} {encoding:<10} {accuracy:>10.3} {differs:>14.1e} {:>14.2}",
                bytes / 1e6
            );
            report.set(&format!("accuracy_{split}_{encoding}"), accuracy);
            report.set(&format!("loss_difference_{split}_{encoding}"), differs);
            report.set(&format!("bytes_per_epoch_{split}_{encoding}"), bytes);
        }
    }
    Ok(())
}

fn train(
    pretrained: &Pretrained,
    photos: &Photos,
    split: &str,
    encoding: &str,
    epochs: &str,
) -> Result<Vec<serde_json::Value>> {
    let folder = tempfile::tempdir()?;
    frostline(&[
        "train",
        "--model",
        text(&pretrained.file)?,
        "--data",
        text(photos.root())?,
        "--freeze",
        pretrained.freeze,
        "--split",
        split,
        "--encoding",
        encoding,
        "--epochs",
        epochs,
        "--runs",
        text(folder.path())?,
    ])
}
