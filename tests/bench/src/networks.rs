//! The networks that are measured, torchvision's with random weights: those change neither shapes nor times.

use crate::photos::Photos;
use crate::prefix::quantized;
use crate::report::{Report, folder};
use crate::run::source;
use crate::trainer::cannot_train;
use crate::training::torch;
use anyhow::{Context, Result, bail};
use frostline_wire::Split;
use serde::Deserialize;
use std::io::stderr;
use std::path::PathBuf;
use std::process::Command;

/// The paper's seven, as torchvision calls them; of a quick run, the first three.
pub(crate) const NETWORKS: [&str; 7] = [
    "alexnet",
    "resnet18",
    "densenet121",
    "resnet50",
    "vgg11",
    "vgg19",
    "vit_b_16",
];
pub(crate) const QUICK: usize = 3;

/// At the end of the name of a network whose frozen layers are in int8.
const INT8: &str = "-int8";

/// One of [`NETWORKS`], which may end with [`INT8`].
pub(crate) fn named(name: &str) -> Result<String, String> {
    match NETWORKS.contains(&plain(name)) {
        true => Ok(name.to_owned()),
        false => Err(format!(
            "is none of {}, with or without '{INT8}'",
            NETWORKS.join(", ")
        )),
    }
}

/// A network's name, without what says that its frozen layers are in int8.
pub(crate) fn plain(name: &str) -> &str {
    name.strip_suffix(INT8).unwrap_or(name)
}

/// Everything in `grid.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grid {
    full: Extent,
    quick: Extent,
    network: Vec<Network>,
}

/// How much is measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extent {
    pub(crate) networks: Vec<String>,
    pub(crate) links_mbit: Vec<f64>,
    pub(crate) minutes: f64,
    /// Runs that every candidate has in any case; more, up to three, while time is left.
    pub(crate) rounds: usize,
    /// Steps that count in one run of a candidate: at least, at most.
    pub(crate) steps: [u64; 2],
}

/// One network and its candidate cuts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Network {
    pub(crate) name: String,
    batch: Batch,
    pub(crate) freeze: String,
    cuts: Vec<String>,
    quick_cuts: Vec<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch {
    full: usize,
    quick: usize,
}

impl Grid {
    pub(crate) fn read() -> Result<Self> {
        toml::from_str(include_str!("../grid.toml")).context("tests/bench/grid.toml")
    }

    /// What `report` is to measure: networks and links that were named take the place of the usual ones.
    pub(crate) fn extent(&self, report: &Report) -> Extent {
        let mut extent = if report.quick() { &self.quick } else { &self.full }.clone();
        let (networks, links) = report.named();
        if !networks.is_empty() {
            extent.networks = networks.to_vec();
        }
        if !links.is_empty() {
            extent.links_mbit = links.to_vec();
        }
        extent
    }

    /// The network called `name`, which may end with [`INT8`].
    pub(crate) fn network(&self, name: &str) -> Result<Network> {
        let network = self.network.iter().find(|network| network.name == plain(name));
        let network = network.with_context(|| format!("grid.toml has no network {name:?}"))?;
        Ok(Network {
            name: name.to_owned(),
            ..network.clone()
        })
    }
}

impl Network {
    /// Its file. The first call exports it, and quantizes it with the usual photos where its name says so.
    pub(crate) fn file(&self) -> Result<PathBuf> {
        let Some(plain) = self.name.strip_suffix(INT8) else {
            return exported(&self.name);
        };
        let file = folder()?.join("networks").join(format!("{}.onnx", self.name));
        if !file.is_file() {
            quantized(
                &exported(plain)?,
                &Photos::find(None).part("train"),
                &self.freeze,
                &file,
            )?;
        }
        Ok(file)
    }

    pub(crate) fn batch(&self, quick: bool) -> usize {
        if quick { self.batch.quick } else { self.batch.full }
    }

    /// The splits to choose from: `none`, `input` and the cuts.
    pub(crate) fn candidates(&self, quick: bool) -> Vec<Split> {
        let cuts = if quick { &self.quick_cuts } else { &self.cuts };
        let cuts = cuts.iter().map(|cut| Split::Cut(cut.clone()));
        [Split::None, Split::Input].into_iter().chain(cuts).collect()
    }
}

/// Notes that the network `name` was not measured where `measured` says that it cannot be trained, so that others go on.
pub(crate) fn noted(report: &mut Report, name: &str, measured: Result<()>) -> Result<()> {
    match measured {
        Err(error) if cannot_train(&error) => {
            println!("{name}: not measured: {error}");
            report.set(&format!("{name}_not_measured"), error.to_string());
            Ok(())
        }
        measured => measured.with_context(|| format!("measuring {name}")),
    }
}

/// The file of a network that models/zoo/export.py knows. The first call exports it, and sets PyTorch up where it is missing.
pub(crate) fn exported(name: &str) -> Result<PathBuf> {
    let networks = folder()?.join("networks");
    let file = networks.join(format!("{name}.onnx"));
    if file.is_file() {
        return Ok(file);
    }
    let unfinished = networks.join("unfinished");
    let status = Command::new(torch(&["--vision"])?)
        .arg(source("models/zoo/export.py"))
        .args([name, "--exporter", "legacy", "--out"])
        .arg(&unfinished)
        .stdout(stderr())
        .status()
        .context("cannot start PyTorch's interpreter")?;
    if !status.success() {
        bail!("cannot export {name} from torchvision ({status}); see its output above");
    }
    std::fs::rename(unfinished.join(format!("{name}.onnx")), &file)?;
    Ok(file)
}

/// A split's name without what every name has.
pub(crate) fn short(split: &str) -> &str {
    let name = split.strip_suffix("_output_0").unwrap_or(split);
    name.strip_prefix('/').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arguments;
    use anyhow::anyhow;
    use clap::Parser;
    use frostline_trainer::TrainerError;

    fn report(arguments: &[&str]) -> Report {
        let words = ["bench", "grid"].iter().chain(arguments);
        Report::new("grid", Arguments::try_parse_from(words).unwrap())
    }

    #[test]
    fn a_network_that_cannot_be_trained_is_noted_and_others_go_on() {
        let mut report = report(&[]);
        let refused = TrainerError::LayersTooLarge {
            end: "encoder".to_owned(),
            bytes: 3 << 30,
            limit: 2 << 30,
        };
        noted(&mut report, "vit_b_16", Err(refused.into())).unwrap();
        assert!(report.figures().contains_key("vit_b_16_not_measured"));
        assert!(noted(&mut report, "alexnet", Err(anyhow!("interrupted"))).is_err());
        assert!(!report.figures().contains_key("alexnet_not_measured"));
    }

    #[test]
    fn an_unknown_network_is_refused_with_those_there_are() {
        let words = ["bench", "grid", "--networks", "alexnet,resnet81"];
        let refused = Arguments::try_parse_from(words).unwrap_err().to_string();
        assert!(refused.contains("resnet81"), "{refused}");
        assert!(NETWORKS.iter().all(|name| refused.contains(name)), "{refused}");
        let words = ["bench", "grid", "--networks", "alexnet,resnet18-int8"];
        let networks = Arguments::try_parse_from(words).unwrap().networks;
        let grid = Grid::read().unwrap();
        assert!(
            networks.iter().all(|name| grid.network(name).is_ok()),
            "{networks:?}"
        );
    }

    #[test]
    fn what_is_named_is_measured_though_a_quick_run_has_others() {
        let report = report(&["--quick", "--networks", "resnet50", "--links", "20"]);
        let extent = Grid::read().unwrap().extent(&report);
        assert_eq!(
            (extent.networks, extent.links_mbit),
            (vec!["resnet50".to_owned()], vec![20.0])
        );
    }

    #[test]
    fn every_network_ends_at_its_freeze_cut_and_has_eight_cuts_at_most() {
        let grid = Grid::read().unwrap();
        let mut names: Vec<&str> = grid.network.iter().map(|network| network.name.as_str()).collect();
        names.sort_unstable();
        let mut known = NETWORKS;
        known.sort_unstable();
        assert_eq!(names, known);
        for network in &grid.network {
            for cuts in [&network.cuts, &network.quick_cuts] {
                assert!(cuts.len() <= 8, "{}", network.name);
                assert_eq!(cuts.last(), Some(&network.freeze), "{}", network.name);
            }
            let subset = network.quick_cuts.iter().all(|cut| network.cuts.contains(cut));
            assert!(subset, "{}", network.name);
        }
        for name in grid.full.networks.iter().chain(&grid.quick.networks) {
            grid.network(name).unwrap();
        }
    }

    #[test]
    fn short_names_keep_what_tells_cuts_apart() {
        assert_eq!(
            short("/features/features.2/MaxPool_output_0"),
            "features/features.2/MaxPool"
        );
        assert_eq!(short("none"), "none");
    }
}
