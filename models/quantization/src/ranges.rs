use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Smallest and largest element of a value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The smallest element, or NaN if a measured minimum was NaN.
    pub least: f32,
    /// The largest element, or NaN if a measured maximum was NaN.
    pub greatest: f32,
}

/// Ranges of a network's values by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranges(BTreeMap<String, Range>);

impl Ranges {
    /// Returns the range of the value `name`.
    pub fn get(&self, name: &str) -> Option<Range> {
        self.0.get(name).copied()
    }

    pub(crate) fn widen(&mut self, name: &str, range: Range) {
        let known = self.0.entry(name.to_owned()).or_insert(range);
        // Comparisons with NaN are false, so NaN is stored explicitly and then stays.
        if range.least.is_nan() || range.least < known.least {
            known.least = range.least;
        }
        if range.greatest.is_nan() || range.greatest > known.greatest {
            known.greatest = range.greatest;
        }
    }
}
