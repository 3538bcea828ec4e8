//! The same PyTorch loop fed by an S3 DataLoader and by the Python package, over shaped links; and how many lines of a loop are other ones.

use crate::networks::{Grid, Network, noted};
use crate::package::{self, Package};
use crate::peers::Peer;
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
/// Steps of the DataLoader's loop, and of ours.
const STEPS: [usize; 2] = [16, 24];
const QUICK_STEPS: [usize; 2] = [12, 12];

/// Notes `speedup_vs_dataloader` and `lines_changed`.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    let changed = lines_changed()?;
    report.set("lines_changed", changed);
    println!("lines of the loop that are other ones: {changed}");
    let (grid, python, package) = (Grid::read()?, torch(&["--vision"])?, package::unpacked()?);
    let tiers = Tiers::open(&report.photos())?;
    println!(
        "{:<12} {:>6} {:>5} {:>9} {:>13} {:>7}  split",
        "network", "Mbit/s", "batch", "ours s", "DataLoader s", "ratio"
    );
    let mut all = Vec::new();
    for name in NETWORKS {
        let measured = network(report, &tiers, grid.network(name)?, &python, &package);
        noted(report, name, measured.map(|ratios| all.extend(ratios)))?;
    }
    report.set("speedup_vs_dataloader", geometric_mean(&all));
    report.set("speedup_vs_dataloader_min", quantile(&all, 0.0));
    println!(
        "faster than a DataLoader {:.2} times in the geometric mean",
        geometric_mean(&all)
    );
    Ok(())
}

fn network(
    report: &mut Report,
    tiers: &Tiers,
    network: &Network,
    python: &Path,
    package: &Package,
) -> Result<Vec<f64>> {
    let quick = report.quick();
    let (links, [loader_steps, steps]) = if quick {
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
        let (ours, split) = peer.pushed_down(package, steps)?;
        let loader = peer.loader(loader_steps)?;
        let name = &network.name;
        println!(
            "{name:<12} {mbit:>6} {:>5} {ours:>9.3} {loader:>13.3} {:>7.2}  {split}",
            trainer.batch(),
            loader / ours
        );
        report.set(&format!("{name}_{mbit}mbit_speedup_vs_dataloader"), loader / ours);
        ratios.push(loader / ours);
    }
    Ok(ratios)
}

/// Lines of `pushdown.py` that `plain.py`, the same loop without it, has not; what both say about themselves does not count.
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
            .with_context(|| format!("{name} says nothing of itself"))?;
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
    fn three_lines_of_the_example_are_other_ones() {
        assert_eq!(super::lines_changed().unwrap(), 3);
    }
}
