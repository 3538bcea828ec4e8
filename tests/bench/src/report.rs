//! Collects benchmark results in a flat JSON file.

use crate::Arguments;
use crate::photos::Photos;
use anyhow::{Context, Result};
use frostline_engine::Device;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Collects the figures of a benchmark by key.
pub(crate) struct Report {
    name: String,
    arguments: Arguments,
    figures: Map<String, Value>,
}

impl Report {
    pub(crate) fn new(name: &str, arguments: Arguments) -> Self {
        Self {
            name: name.to_owned(),
            arguments,
            figures: Map::new(),
        }
    }

    /// True if `--quick` is set.
    pub(crate) fn quick(&self) -> bool {
        self.arguments.quick
    }

    /// Listing that this process should train on, if it is a trainer process of the benchmark dataset.
    pub(crate) fn listing(&self) -> Option<&str> {
        self.arguments.listing.as_deref()
    }

    /// Network through which this process should run a batch, if it is a loop process of the benchmark
    /// tenants.
    pub(crate) fn extract(&self) -> Option<&Path> {
        self.arguments.extract.as_deref()
    }

    /// Suffix whose step this process should measure and the dimensions of a batch, if it is a step process
    /// of the benchmark training.
    pub(crate) fn step(&self) -> Option<(&Path, &[usize])> {
        let file = self.arguments.step.as_deref()?;
        Some((file, &self.arguments.dims))
    }

    /// Networks and links (Mbit/s) named on the command line.
    pub(crate) fn named(&self) -> (&[String], &[f64]) {
        (&self.arguments.networks, &self.arguments.links)
    }

    /// True if this part of the benchmark should run.
    pub(crate) fn has(&self, part: &str) -> bool {
        let parts = &self.arguments.parts;
        parts.is_empty() || parts.iter().any(|named| named == part)
    }

    /// Suffixes named on the command line.
    pub(crate) fn suffixes(&self) -> &[String] {
        &self.arguments.suffixes
    }

    /// Device to measure.
    pub(crate) fn device(&self) -> Device {
        self.arguments.device.unwrap_or_default()
    }

    /// Returns the time limit for starting measurements in seconds. The default is `usual`.
    pub(crate) fn seconds_or(&self, usual: u64) -> u64 {
        self.arguments.seconds.unwrap_or(usual)
    }

    /// Photos to measure with.
    pub(crate) fn photos(&self) -> Photos {
        Photos::find(self.arguments.photos.as_deref())
    }

    /// Sets a figure. With `--stream`, also prints it as a JSON line.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        if self.arguments.stream {
            println!("{}", serde_json::json!({ key: value }));
        }
        self.figures.insert(key.to_owned(), value);
    }

    #[cfg(test)]
    pub(crate) fn figures(&self) -> &Map<String, Value> {
        &self.figures
    }

    /// Writes the figures to `<name>.json`, or `<name>-<parts>.json` if parts were named, in [`folder`].
    pub(crate) fn write(mut self) -> Result<()> {
        let folder = folder()?;
        self.set("commit", commit());
        self.set("date", SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs());
        self.set("quick", self.quick());
        let parts = self.arguments.parts.iter();
        let name = std::iter::once(&self.name).chain(parts).cloned();
        let file = folder.join(format!("{}.json", name.collect::<Vec<_>>().join("-")));
        std::fs::write(&file, serde_json::to_string_pretty(&self.figures)? + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?;
        println!("\nwritten to {}", file.display());
        Ok(())
    }
}

/// Creates and returns the folder for results and cached files. The default is `target/bench`. Set by
/// `FROSTLINE_BENCH_OUT`.
pub(crate) fn folder() -> Result<PathBuf> {
    let folder =
        PathBuf::from(std::env::var_os("FROSTLINE_BENCH_OUT").unwrap_or_else(|| "target/bench".into()));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Measured commit as set by `cargo xtask bench`, or an empty string.
pub(crate) fn commit() -> String {
    std::env::var("FROSTLINE_BENCH_COMMIT").unwrap_or_default()
}

/// Formats a figure that the host may not report.
pub(crate) fn shown(value: Option<f64>) -> String {
    value.map_or("unknown".to_owned(), |value| format!("{value:.3}"))
}

/// Median; for an even number of values, the mean of the two middle ones. NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle).copied().unwrap_or(f64::NAN);
    if sorted.len() % 2 == 1 {
        return upper;
    }
    middle
        .checked_sub(1)
        .and_then(|lower| sorted.get(lower))
        .map_or(f64::NAN, |lower| (lower + upper) / 2.0)
}

/// Smallest value such that at least `share` (0 to 1) of all values are less than or equal to it. NaN without
/// values.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Geometric mean, the right average for ratios. NaN without values.
pub(crate) fn geometric_mean(values: &[f64]) -> f64 {
    let logarithms: f64 = values.iter().map(|value| value.ln()).sum();
    (logarithms / values.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::{geometric_mean, median, quantile};

    #[test]
    fn the_median_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn quantiles_are_input_values() {
        let values = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert_eq!(
            (
                quantile(&values, 0.9),
                quantile(&values, 0.5),
                quantile(&values, 0.2)
            ),
            (5.0, 3.0, 1.0)
        );
        assert!(quantile(&[], 0.9).is_nan());
    }

    #[test]
    fn a_ratio_and_its_inverse_average_to_one() {
        assert!((geometric_mean(&[4.0, 0.25]) - 1.0).abs() < 1e-12);
        assert!(geometric_mean(&[]).is_nan());
    }
}
