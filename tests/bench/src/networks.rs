//! Networks to measure: torchvision networks with random weights, which affect neither shapes nor times.

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

/// Torchvision names of the seven networks in the HAPI paper. Quick runs use the first [`QUICK`].
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

/// Name suffix of networks with int8 layers up to the freeze cut.
const INT8: &str = "-int8";

/// Parses a name from [`NETWORKS`] with an optional [`INT8`].
pub(crate) fn named(name: &str) -> Result<String, String> {
    match NETWORKS.contains(&plain(name)) {
        true => Ok(name.to_owned()),
        false => Err(format!(
            "must be one of {}, optionally with '{INT8}' appended",
            NETWORKS.join(", ")
        )),
    }
}

/// Strips [`INT8`] from a network name.
pub(crate) fn plain(name: &str) -> &str {
    name.strip_suffix(INT8).unwrap_or(name)
}

/// Contents of `grid.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grid {
    full: Extent,
    quick: Extent,
    network: Vec<Network>,
}

/// Scope of a full or quick run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extent {
    pub(crate) networks: Vec<String>,
    pub(crate) links_mbit: Vec<f64>,
    pub(crate) minutes: f64,
    /// Minimum number of runs per candidate. Up to three runs are made if time allows.
    pub(crate) rounds: usize,
    /// Minimum and maximum number of counted steps per run.
    pub(crate) steps: [u64; 2],
}

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

    /// Scope of this run: networks and links from the command line replace the defaults.
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

    /// Returns the network called `name`, which may end with [`INT8`].
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
    /// Returns the network's file. The first call exports the network and, for int8, quantizes it with the
    /// default photos.
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

    /// Returns the candidate splits (`none`, `input` and the cuts).
    pub(crate) fn candidates(&self, quick: bool) -> Vec<Split> {
        let cuts = if quick { &self.quick_cuts } else { &self.cuts };
        let cuts = cuts.iter().map(|cut| Split::Cut(cut.clone()));
        [Split::None, Split::Input].into_iter().chain(cuts).collect()
    }
}

/// Handles the result of measuring a network. If the network cannot be trained, this function reports that
/// and returns `Ok`, so the benchmark continues with the next network.
pub(crate) fn skip_untrainable(report: &mut Report, name: &str, measured: Result<()>) -> Result<()> {
    match measured {
        Err(error) if cannot_train(&error) => {
            println!("{name} skipped: {error}");
            report.set(&format!("{name}_not_measured"), error.to_string());
            Ok(())
        }
        measured => measured.with_context(|| format!("measuring {name}")),
    }
}

/// Returns the file for a network from models/zoo/export.py. The first call exports the network and installs
/// PyTorch if necessary.
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

/// Strips the parts that are common to all split names.
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
        skip_untrainable(&mut report, "vit_b_16", Err(refused.into())).unwrap();
        assert!(report.figures().contains_key("vit_b_16_not_measured"));
        assert!(skip_untrainable(&mut report, "alexnet", Err(anyhow!("interrupted"))).is_err());
        assert!(!report.figures().contains_key("alexnet_not_measured"));
    }

    #[test]
    fn an_unknown_network_is_refused_with_the_supported_names() {
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
    fn named_networks_and_links_replace_quick_defaults() {
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
