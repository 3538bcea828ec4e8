//! The networks that are measured, as `grid.toml` names them, filled with weights.

use crate::report::folder;
use crate::study::fill;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::PathBuf;

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

    pub(crate) fn extent(&self, quick: bool) -> &Extent {
        if quick { &self.quick } else { &self.full }
    }

    /// The network called `name`.
    pub(crate) fn network(&self, name: &str) -> Result<&Network> {
        self.network
            .iter()
            .find(|network| network.name == name)
            .with_context(|| format!("grid.toml has no network {name:?}"))
    }
}

impl Network {
    pub(crate) fn batch(&self, quick: bool) -> usize {
        if quick { self.batch.quick } else { self.batch.full }
    }

    pub(crate) fn cuts(&self, quick: bool) -> &[String] {
        if quick { &self.quick_cuts } else { &self.cuts }
    }

    /// Its file, with random weights; made on the first call.
    pub(crate) fn file(&self) -> Result<PathBuf> {
        let models = folder()?.join("models");
        let file = models.join(format!("{}.onnx", self.name));
        if file.is_file() {
            return Ok(file);
        }
        std::fs::create_dir_all(&models)?;
        let unfinished = models.join(format!("{}.part", self.name));
        fill(&self.name, &unfinished)?;
        std::fs::rename(&unfinished, &file)?;
        Ok(file)
    }
}

/// A split's name without what every name has.
pub(crate) fn short(split: &str) -> &str {
    let name = split.strip_suffix("_output_0").unwrap_or(split);
    name.strip_prefix('/').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_ends_at_its_freeze_cut_and_has_eight_cuts_at_most() {
        let grid = Grid::read().unwrap();
        assert_eq!(grid.network.len(), 7);
        for network in &grid.network {
            for quick in [false, true] {
                let cuts = network.cuts(quick);
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
