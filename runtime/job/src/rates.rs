use crate::SettingError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The group of the fresh head's weights.
pub const HEAD: &str = "head";
/// The group of all weights that are in no other.
pub const REST: &str = "rest";

/// Learning rates: one for all weights, or by group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LearningRates {
    /// Of all weights.
    One(f64),
    /// By group: `head` (the new classifier), `rest`, or how names of weights begin; the longest such name counts.
    Groups(BTreeMap<String, f64>),
}

impl LearningRates {
    /// Refuses rates that train nothing.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn check(&self) -> Result<(), SettingError> {
        let must = "it must be above 0; 0 is allowed for groups beside others";
        let held = SettingError::unless;
        match self {
            Self::One(rate) => held(*rate > 0.0 && rate.is_finite(), "the learning rate", rate, must),
            Self::Groups(groups) => {
                for rate in groups.values() {
                    held(*rate >= 0.0 && rate.is_finite(), "a learning rate", rate, must)?;
                }
                let most = self.most();
                held(most > 0.0, "the largest learning rate", &most, must)
            }
        }
    }

    /// The largest.
    pub fn most(&self) -> f64 {
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
            text.parse::<f64>()
                .map_err(|_| format!("invalid number {text:?}: write 0.01, or head=0.1,rest=0.01"))
        };
        if !text.contains('=') {
            return number(text).map(Self::One);
        }
        let pair = |part: &str| {
            let (group, rate) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is not <group>=<rate>"))?;
            Ok((group.trim().to_owned(), number(rate.trim())?))
        };
        text.split(',')
            .map(pair)
            .collect::<Result<_, String>>()
            .map(Self::Groups)
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
