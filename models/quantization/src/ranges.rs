use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The least and the greatest element of a value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The least.
    pub least: f32,
    /// The greatest.
    pub greatest: f32,
}

/// The ranges of a network's values, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ranges(BTreeMap<String, Range>);

impl Ranges {
    /// The range of the value called `name`.
    pub fn get(&self, name: &str) -> Option<Range> {
        self.0.get(name).copied()
    }

    /// Widens the range of `name` to include `range`.
    pub(crate) fn widen(&mut self, name: &str, range: Range) {
        let known = self.0.entry(name.to_owned()).or_insert(range);
        // A comparison with NaN would forget it.
        let is_worse = |new: f32, beyond: bool| new.is_nan() || beyond;
        if is_worse(range.least, range.least < known.least) {
            known.least = range.least;
        }
        if is_worse(range.greatest, range.greatest > known.greatest) {
            known.greatest = range.greatest;
        }
    }
}
