//! Compares a PyTorch loop with an S3 DataLoader and with the Python package, over shaped links. Also counts
//! the lines that differ between the two loops.

use crate::networks::{Grid, Network, skip_untrainable};
use crate::package::{self, Package};
use crate::peers::{Peer, PushedDown};
use crate::report::{Report, geometric_mean, quantile};
use crate::tiers::Tiers;
use crate::trainer::Trainer;
use crate::training::torch;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

const NETWORKS: [&str; 2] = ["resnet18", "resnet50"];
/// In Mbit/s.
const LINKS: [f64; 2] = [20.0, 50.0];
const QUICK_LINKS: [f64; 1] = [50.0];
/// Steps of the DataLoader's loop; ours runs epochs.
const STEPS: usize = 16;
const QUICK_STEPS: usize = 12;
/// Epochs of the compared job. With a DataLoader, all epochs are alike.
const EPOCHS: f64 = 10.0;

/// Speed-up over a DataLoader for the first epoch and for a job, with frozen layers in f32 and in the
/// precision chosen by `auto`.
#[derive(Default)]
struct Ratio {
    first: f64,
    job: f64,
    first_auto: f64,
    job_auto: f64,
}

/// Sets `lines_changed`, `speedup_vs_dataloader` (a job of [`EPOCHS`]) and
/// `speedup_vs_dataloader_first_epoch`. The suffix `_min` is the minimum, `_auto` uses frozen layers as
/// chosen by `auto`.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    let changed = lines_changed()?;
    report.set("lines_changed", changed);
    println!("changed lines of the loop: {changed}");
    let (grid, python, package) = (Grid::read()?, torch(&["--vision"])?, package::unpacked()?);
    let tiers = Tiers::open(&report.photos())?;
    println!(
        "{:<12} {:>6} {:>5} {:>5} {:>9} {:>9} {:>13} {:>7} {:>7}  split",
        "network", "Mbit/s", "batch", "", "first s", "later s", "DataLoader s", "first", "job"
    );
    let mut all = Vec::new();
    for name in NETWORKS {
        let measured = network(report, &tiers, &grid.network(name)?, &python, &package);
        skip_untrainable(report, name, measured.map(|ratios| all.extend(ratios)))?;
    }
    let of = |value: fn(&Ratio) -> f64| all.iter().map(value).collect::<Vec<f64>>();
    for (precision, suffix, first, job) in [
        ("f32", "", of(|ratio| ratio.first), of(|ratio| ratio.job)),
        (
            "auto",
            "_auto",
            of(|ratio| ratio.first_auto),
            of(|ratio| ratio.job_auto),
        ),
    ] {
        report.set(&format!("speedup_vs_dataloader{suffix}"), geometric_mean(&job));
        report.set(&format!("speedup_vs_dataloader{suffix}_min"), quantile(&job, 0.0));
        report.set(
            &format!("speedup_vs_dataloader_first_epoch{suffix}"),
            geometric_mean(&first),
        );
        report.set(
            &format!("speedup_vs_dataloader_first_epoch{suffix}_min"),
            quantile(&first, 0.0),
        );
        if !all.is_empty() {
            println!(
                "{precision}: speed-up over a DataLoader, geometric means: {:.2} in the first epoch, {:.2} over {EPOCHS} epochs",
                geometric_mean(&first),
                geometric_mean(&job)
            );
        }
    }
    Ok(())
}

fn network(
    report: &mut Report,
    tiers: &Tiers,
    network: &Network,
    python: &Path,
    package: &Package,
) -> Result<Vec<Ratio>> {
    let quick = report.quick();
    let (links, steps) = if quick {
        (&QUICK_LINKS[..], QUICK_STEPS)
    } else {
        (&LINKS[..], STEPS)
    };
    let folder = tempfile::tempdir()?;
    tiers.link().hold(None)?;
    let host = tiers.host(folder.path())?;
    let trainer = Trainer::open(tiers, &host, network, network.batch(quick))?;
    let mut ratios = Vec::new();
    for mbit in links {
        tiers.link().hold(Some(*mbit))?;
        let peer = Peer {
            trainer: &trainer,
            python,
        };
        let loader = peer.loader(steps)?;
        let mut ratio = Ratio::default();
        for (precision, suffix) in [("f32", ""), ("auto", "_auto")] {
            let PushedDown { first, later, split } = peer.pushed_down(package, precision)?;
            let (name, at_first) = (&network.name, loader / first);
            let job = EPOCHS * loader / (first + (EPOCHS - 1.0) * later);
            println!(
                "{name:<12} {mbit:>6} {:>5} {precision:>5} {first:>9.3} {later:>9.4} {loader:>13.3} {at_first:>7.2} {job:>7.2}  {split}",
                trainer.batch(),
            );
            let key = format!("{name}_{mbit}mbit_speedup_vs_dataloader");
            report.set(&format!("{key}{suffix}"), job);
            report.set(&format!("{key}_first_epoch{suffix}"), at_first);
            match precision {
                "f32" => (ratio.first, ratio.job) = (at_first, job),
                _ => (ratio.first_auto, ratio.job_auto) = (at_first, job),
            }
        }
        ratios.push(ratio);
    }
    Ok(ratios)
}

/// Number of lines in `pushdown.py` that are not in `plain.py`, the same loop without pushdown. Module
/// docstrings do not count.
fn lines_changed() -> Result<usize> {
    let folder: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "..",
        "..",
        "runtime",
        "python",
        "examples",
    ]
    .iter()
    .collect();
    let code = |name: &str| {
        let text =
            std::fs::read_to_string(folder.join(name)).with_context(|| format!("cannot read {name}"))?;
        let (_, code) = text
            .rsplit_once("\"\"\"")
            .with_context(|| format!("missing module docstring in {name}"))?;
        anyhow::Ok(code.lines().map(str::to_owned).collect::<Vec<String>>())
    };
    let plain = code("plain.py")?;
    Ok(code("pushdown.py")?
        .iter()
        .filter(|line| !plain.contains(line))
        .count())
}

#[cfg(test)]
mod tests {
    #[test]
    fn three_lines_of_the_example_differ() {
        assert_eq!(super::lines_changed().unwrap(), 3);
    }
}
