use crate::SettingError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Group of the new classifier's weights.
pub const HEAD: &str = "head";
/// Default group of weights.
pub const REST: &str = "rest";

/// Learning rates of all weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LearningRates {
    /// Common rate of all weights.
    One(f64),
    /// Rates by group. Groups are `head` (the new classifier), `rest`, and prefixes of weight names. The
    /// longest matching prefix applies.
    Groups(BTreeMap<String, f64>),
}

impl LearningRates {
    /// Validates the rates.
    ///
    /// # Errors
    /// Returns a [`SettingError`] if a rate is negative or not finite, or if all rates are 0.
    pub fn check(&self) -> Result<(), SettingError> {
        let must = "use a number above 0 (0 is allowed for some groups, but not all)";
        let held = SettingError::require;
        match self {
            Self::One(rate) => held(*rate > 0.0 && rate.is_finite(), "the learning rate", rate, must),
            Self::Groups(groups) => {
                for rate in groups.values() {
                    held(*rate >= 0.0 && rate.is_finite(), "a learning rate", rate, must)?;
                }
                let most = self.largest();
                held(most > 0.0, "the largest learning rate", &most, must)
            }
        }
    }

    /// Returns the largest rate.
    pub fn largest(&self) -> f64 {
        match self {
            Self::One(rate) => *rate,
            Self::Groups(groups) => groups.values().copied().fold(0.0, f64::max),
        }
    }
}

impl FromStr for LearningRates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse::<f64>().map_err(|_| {
                format!("invalid number {text:?}: expected a rate (examples: 0.01 and head=0.1,rest=0.01)")
            })
        };
        if !text.contains('=') {
            return number(text).map(Self::One);
        }
        let pair = |part: &str| {
            let (group, rate) = part
                .split_once('=')
                .ok_or_else(|| format!("invalid rate {part:?}: expected <group>=<rate>"))?;
            Ok::<_, String>((group.trim().to_owned(), number(rate.trim())?))
        };
        let mut groups = BTreeMap::new();
        for pair in text.split(',').map(pair) {
            let (group, rate) = pair?;
            if groups.insert(group.clone(), rate).is_some() {
                return Err(format!(
                    "group '{group}' is set more than once; specify a single rate"
                ));
            }
        }
        Ok(Self::Groups(groups))
    }
}

impl fmt::Display for LearningRates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(rate) => rate.fmt(formatter),
            Self::Groups(groups) => {
                let pairs: Vec<String> = groups
                    .iter()
                    .map(|(group, rate)| format!("{group}={rate}"))
                    .collect();
                formatter.write_str(&pairs.join(","))
            }
        }
    }
}
