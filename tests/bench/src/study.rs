//! The per-layer study of the seven networks, by `frostline profile` on real photos, and how far what a profile predicts lies from
//! what the real prefixes take. Weights are random: they change neither shapes nor times.

use crate::networks::{NETWORKS, QUICK, exported};
use crate::photos::Photos;
use crate::report::{Report, folder, median};
use crate::run::{frostline, text};
use anyhow::{Context, Result};
use frostline_engine::{Session, SessionOptions};
use frostline_graph::Model;
use frostline_tensor::Tensor;
use frostline_wire::{CutProfile, Profile};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Cuts of each network whose prefix is run in earnest.
const CHECKED: usize = 5;

/// Rows of a run: a host's usual grant.
const BATCH: usize = 16;

/// Profiles and checks of a network, in turns.
const ROUNDS: usize = 2;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let figures = std::path::absolute(folder()?)?.join("study");
    std::fs::create_dir_all(&figures)?;
    let count = if report.quick() { QUICK } else { NETWORKS.len() };
    let (mut errors, mut seconds) = (Vec::new(), Vec::new());
    for name in NETWORKS.iter().take(count) {
        let model = exported(name)?;
        let figure = figures.join(format!("{name}.svg"));
        let (profile, checked) = compare(&model, &report.photos(), &figure)?;
        println!(
            "\n{name}: profiled in {:.1} s, figure in {}",
            profile.measured_in_seconds,
            figure.display()
        );
        table(&profile, &checked);
        let own: Vec<f64> = checked.iter().map(|(_, error)| error.abs()).collect();
        report.set(&format!("{name}_worst_prediction_error"), largest(&own));
        report.set(&format!("{name}_median_prediction_error"), median(&own));
        report.set(&format!("{name}_profile_seconds"), profile.measured_in_seconds);
        report.set(&format!("{name}_cuts"), profile.cuts.len());
        errors.extend(own);
        seconds.push(profile.measured_in_seconds);
    }
    println!(
        "\npredicted against run in earnest, {} prefixes at batch {BATCH}: median {:.1} % apart, worst {:.1} %",
        errors.len(),
        100.0 * median(&errors),
        100.0 * largest(&errors)
    );
    let close = errors.iter().filter(|error| **error <= 0.1).count();
    report.set("worst_prediction_error", largest(&errors));
    report.set("median_prediction_error", median(&errors));
    report.set("within_10_percent_share", close as f64 / errors.len() as f64);
    report.set("longest_profile_seconds", largest(&seconds));
    Ok(())
}

fn study(model: &Path, photos: &Photos, figure: &Path) -> Result<Profile> {
    let data = photos.part("train");
    let lines = frostline(&[
        "profile",
        "--model",
        text(model)?,
        "--data",
        text(&data)?,
        "--plot",
        text(figure)?,
    ])?;
    let profile = lines.first().and_then(|line| line.get("profile")).cloned();
    Ok(serde_json::from_value(
        profile.context("frostline profile printed no profile")?,
    )?)
}

/// The first of two profiles, and how far off the prediction is for some of its cuts: the cut's place, and the error relative to what the
/// prefix really took. Both are the least of two rounds, in turns: whatever else goes on in a machine only adds to either.
fn compare(model: &Path, photos: &Photos, figure: &Path) -> Result<(Profile, Vec<(usize, f64)>)> {
    let mut first = None;
    let mut least: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let profile = study(model, photos, figure)?;
        for (index, real) in check(model, &profile)? {
            let predicted = profile
                .cuts
                .get(index)
                .map_or(f64::NAN, |cut| cut.compute.at(BATCH as f64));
            let known = least.entry(index).or_insert((f64::INFINITY, f64::INFINITY));
            *known = (known.0.min(predicted), known.1.min(real));
        }
        first.get_or_insert(profile);
    }
    let error = |(index, (predicted, real)): (usize, (f64, f64))| (index, predicted / real - 1.0);
    let errors = least.into_iter().map(error).collect();
    Ok((first.context("no round was measured")?, errors))
}

/// Runs the prefix to some of the cuts: each cut's place in the profile, and the seconds of a batch.
fn check(file: &Path, profile: &Profile) -> Result<Vec<(usize, f64)>> {
    let model = Model::read(file)?;
    let network = model.network()?;
    let row = &network.input.shape;
    let input = Tensor::f32(row.batched(BATCH), noise(row.elements()? * BATCH))?;
    let cuts = profile.cuts.len();
    let mut checked = Vec::new();
    for number in 1..=CHECKED.min(cuts) {
        let index = number * cuts / CHECKED.min(cuts) - 1;
        let Some(cut) = profile.cuts.get(index) else {
            continue;
        };
        let options = SessionOptions {
            threads: profile.platform.threads_per_lane,
            ..SessionOptions::default()
        };
        let part = model.slice(None, Some(&cut.name))?.to_bytes()?;
        let mut session = Session::open(&part, &options)?;
        checked.push((index, real(&mut session, &network.input.name, &input)?));
    }
    Ok(checked)
}

/// Seconds of one batch: the least of three, as profiles take it, after one that does not count.
fn real(session: &mut Session, name: &str, input: &Tensor) -> Result<f64> {
    let mut least = f64::INFINITY;
    session.run(&[(name, input)])?;
    for _ in 0..3 {
        let started = Instant::now();
        session.run(&[(name, input)])?;
        least = least.min(started.elapsed().as_secs_f64());
    }
    Ok(least)
}

/// Values between -1 and 1, the same every time.
fn noise(count: usize) -> Vec<f32> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

fn table(profile: &Profile, checked: &[(usize, f64)]) {
    let widest = profile
        .cuts
        .iter()
        .map(|cut| cut.name.len())
        .max()
        .unwrap_or(0)
        .max(3);
    println!(
        "{:<widest$} {:>10} {:>12} {:>9} {:>12} {:>10} {:>10}",
        "cut", "KB", "ms an image", "own", "all busy", "MB", "predicted"
    );
    let alone = |cut: &CutProfile| cut.compute.at(BATCH as f64) / BATCH as f64 * 1e3;
    let mut before = 0.0;
    for (index, cut) in profile.cuts.iter().enumerate() {
        let error = checked.iter().find(|(checked, _)| *checked == index);
        println!(
            "{:<widest$} {:>10.1} {:>12.2} {:>9.2} {:>12.2} {:>10.1} {:>10}",
            cut.name,
            cut.bytes_per_sample as f64 / 1e3,
            alone(cut),
            alone(cut) - before,
            cut.busy_seconds_per_sample * 1e3,
            cut.memory.at(BATCH as f64) / 1e6,
            error.map_or_else(String::new, |(_, error)| format!("{:+.1} %", error * 100.0))
        );
        before = alone(cut);
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}
