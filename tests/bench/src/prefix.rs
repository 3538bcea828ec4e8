//! Frozen layers in int8 compared with f32: images per second on a host, similarity of the activations, and
//! accuracy of a head trained on them. Also similarity and accuracy in f16, and the number of rows per engine
//! batch.

mod half;
mod rows;

use crate::accuracy::mean;
use crate::networks::{Grid, NETWORKS, QUICK, exported, plain};
use crate::report::{Report, geometric_mean, quantile};
use crate::run::{frostline, last_number, shared, text, train};
use anyhow::{Context, Result};
use frostline_wire::Profile;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Parts that can run separately.
pub(crate) const PARTS: [&str; 4] = ["speed", "f16", "accuracy", "rows"];

/// Number of profiles per network and precision, measured in turns.
const ROUNDS: usize = 3;

const SEEDS: usize = 3;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    if report.has("speed") {
        speed(report)?;
    }
    if report.has("f16") {
        half::run(report)?;
    }
    if report.has("accuracy") {
        accuracy(report)?;
    }
    if report.has("rows") {
        rows::run(report)?;
    }
    Ok(())
}

/// Networks from the command line, or the paper's. Each is measured in both precisions.
fn names(report: &Report) -> Vec<String> {
    match (report.named().0, report.quick()) {
        ([], true) => NETWORKS.iter().take(QUICK).map(|&name| name.to_owned()).collect(),
        ([], false) => NETWORKS.map(str::to_owned).to_vec(),
        (named, _) => named.iter().map(|name| plain(name).to_owned()).collect(),
    }
}

/// Measures the paper's networks up to their freeze cuts. The random weights do not affect the times.
fn speed(report: &mut Report) -> Result<()> {
    let (grid, photos) = (Grid::read()?, report.photos());
    println!(
        "{:<12} {:>10} {:>10} {:>8} {:>8} {:>10}",
        "network", "f32 img/s", "int8 img/s", "faster", "cosine", "in int8"
    );
    let (mut speedups, mut taken, mut cosines) = (Vec::new(), Vec::new(), Vec::new());
    for name in names(report) {
        let (model, freeze) = (exported(&name)?, grid.network(&name)?.freeze.clone());
        let folder = tempfile::tempdir()?;
        let data = photos.part("train");
        let int8 = quantized(&model, &data, &freeze, &folder.path().join("int8.onnx"))?;
        let mut rates = [0.0_f64; 2];
        for _ in 0..ROUNDS {
            for (rate, file) in rates.iter_mut().zip([&model, &int8.file]) {
                *rate = rate.max(images_per_second(file, &data, &freeze)?);
            }
        }
        let [exact, small] = rates;
        let speedup = small / exact;
        println!(
            "{name:<12} {exact:>10.1} {small:>10.1} {speedup:>8.2} {:>8.4} {:>10}",
            int8.cosine, int8.layers
        );
        for (key, value) in [
            ("f32_images_per_second", exact),
            ("int8_images_per_second", small),
            ("int8_speedup", speedup),
            ("int8_cosine", int8.cosine),
        ] {
            report.set(&format!("{name}_{key}"), value);
        }
        speedups.push(speedup);
        cosines.push(int8.cosine);
        if int8.is_taken {
            taken.push(speedup);
        }
    }
    let geomean = geometric_mean(&speedups);
    let least = quantile(&taken, 0.0);
    report.set("int8_speedup_geomean", geomean);
    report.set("int8_speedup_min", least);
    report.set("int8_cosine_min", quantile(&cosines, 0.0));
    println!("\nspeed-up in the geometric mean: {geomean:.2}");
    if !taken.is_empty() {
        println!("networks that auto quantizes are at least {least:.2} times as fast");
    }
    Ok(())
}

/// A network in int8.
pub(crate) struct Int8Network {
    file: PathBuf,
    cosine: f64,
    /// Quantized layers out of all layers with weights.
    layers: String,
    /// True if `auto` would choose int8 here.
    is_taken: bool,
}

/// Writes `model` with its layers up to `freeze` in int8 to `out`.
pub(crate) fn quantized(model: &Path, data: &Path, freeze: &str, out: &Path) -> Result<Int8Network> {
    let (model, data, file) = (text(model)?, text(data)?, text(out)?);
    let lines = frostline(&[
        "model",
        "quantize",
        model,
        "--data",
        data,
        "--freeze",
        freeze,
        "--allow-imprecise",
        "--out",
        file,
    ])?;
    let found = lines
        .last()
        .and_then(|line| line.get("comparison"))
        .context("frostline model quantize printed nothing")?;
    let number = |key: &str| found.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN);
    Ok(Int8Network {
        file: out.to_owned(),
        cosine: number("cosine"),
        layers: format!("{} of {}", number("quantized_layers"), number("layers")),
        is_taken: number("speedup") >= 1.1 && number("cosine") >= 0.99,
    })
}

/// Returns the images per second on a separate host for the layers up to `freeze`, using engine batches with
/// the efficient number of rows.
fn images_per_second(model: &Path, data: &Path, freeze: &str) -> Result<f64> {
    let lines = frostline(&[
        "profile",
        "--model",
        text(model)?,
        "--data",
        text(data)?,
        "--freeze",
        freeze,
    ])?;
    let profile = lines.first().and_then(|line| line.get("profile")).cloned();
    let profile: Profile = serde_json::from_value(profile.context("frostline profile printed no profile")?)?;
    let cut = profile.cuts.last().context("the host measured no cut")?;
    let rows = profile.platform.rows as f64;
    Ok(rows / cut.compute.at(rows))
}

/// Trains heads on activations of pretrained networks. Random weights would not show a loss of accuracy.
fn accuracy(report: &mut Report) -> Result<()> {
    let files = [("squeezenet1_1_pooled", "features"), ("squeezenet1_1", "52")];
    let photos = report.photos();
    let seeds = if report.quick() { 1 } else { SEEDS };
    let epochs = if report.quick() { "5" } else { "20" };
    println!("\n{:<22} {:<6} {:>9}   by seed", "network", "layers", "accuracy");
    let (mut losses, mut half_losses) = (Vec::new(), Vec::new());
    let networks = tempfile::tempdir()?;
    for (name, freeze) in files {
        let Some(file) = shared(&format!("data/{name}.onnx")) else {
            println!("{name} skipped: data/{name}.onnx does not exist in FROSTLINE_SHARED");
            continue;
        };
        let half_file = networks.path().join(format!("{name}.onnx"));
        half::with_half_prefix(&file, freeze, &half_file)?;
        let mut means = Vec::new();
        for (precision, file, computed) in [
            ("f32", &file, "f32"),
            ("f16", &half_file, "f32"),
            ("int8", &file, "int8"),
        ] {
            let mut found = Vec::new();
            for seed in 0..seeds {
                let folder = tempfile::tempdir()?;
                let (seed, kept) = (seed.to_string(), folder.path().join("features"));
                let mut flags = vec!["--batch", "50", "--epochs", epochs, "--seed", &seed];
                flags.extend(["--prefix-precision", computed, "--keep", "last"]);
                flags.extend(["--feature-cache", "4GiB", "--feature-folder", text(&kept)?]);
                let events = train(file, photos.root(), freeze, folder.path(), &flags)?;
                found.push(last_number(&events, "done", "validation_accuracy")?);
            }
            let accuracy = mean(&found);
            println!("{name:<22} {precision:<6} {accuracy:>9.3}   {found:.3?}");
            report.set(&format!("{name}_{precision}_accuracy"), accuracy);
            means.push(accuracy);
        }
        if let [exact, half, small] = means[..] {
            half_losses.push(100.0 * (exact - half));
            losses.push(100.0 * (exact - small));
        }
    }
    for (precision, key, losses) in [
        ("int8", "accuracy_loss_points_max", losses),
        ("f16", "f16_accuracy_loss_points_max", half_losses),
    ] {
        let worst = quantile(&losses, 1.0);
        report.set(key, worst);
        if !losses.is_empty() {
            println!("\nlargest loss of accuracy in {precision}: {worst:.2} points");
        }
    }
    Ok(())
}
