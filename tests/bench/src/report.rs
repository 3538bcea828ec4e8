//! A benchmark's figures: a table for people, flat JSON for scripts.

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Gathers figures by name.
pub(crate) struct Report {
    name: String,
    quick: bool,
    figures: Map<String, Value>,
}

impl Report {
    pub(crate) fn new(name: &str, quick: bool) -> Self {
        Self {
            name: name.to_owned(),
            quick,
            figures: Map::new(),
        }
    }

    /// Whether to be done within five minutes.
    pub(crate) fn quick(&self) -> bool {
        self.quick
    }

    /// Notes a figure under a flat key.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.figures.insert(key.to_owned(), value.into());
    }

    /// Writes `<name>.json` into the folder named by `FROSTLINE_BENCH_OUT`.
    pub(crate) fn write(mut self) -> Result<()> {
        let folder =
            PathBuf::from(std::env::var_os("FROSTLINE_BENCH_OUT").unwrap_or_else(|| "target/bench".into()));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        self.set(
            "commit",
            std::env::var("FROSTLINE_BENCH_COMMIT").unwrap_or_default(),
        );
        self.set("date", SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs());
        self.set("quick", self.quick);
        let file = folder.join(format!("{}.json", self.name));
        std::fs::write(&file, serde_json::to_string_pretty(&self.figures)? + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?;
        println!("\nwritten to {}", file.display());
        Ok(())
    }
}

/// The middle value; of an even number, the mean of the two in the middle.
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

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
