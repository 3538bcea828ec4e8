use super::held;
use crate::TrainerError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The group of the fresh head's weights.
const HEAD: &str = "head";
/// The group of all weights that are in no other.
const REST: &str = "rest";

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
    pub(crate) fn check(&self) -> Result<(), TrainerError> {
        let must = "it must be above 0; 0 is allowed for groups beside others";
        match self {
            Self::One(rate) => held("the learning rate", *rate, *rate > 0.0 && rate.is_finite(), must),
            Self::Groups(groups) => {
                for rate in groups.values() {
                    held("a learning rate", *rate, *rate >= 0.0 && rate.is_finite(), must)?;
                }
                let most = self.most();
                held("the largest learning rate", most, most > 0.0, must)
            }
        }
    }

    /// The largest.
    pub(crate) fn most(&self) -> f64 {
        match self {
            Self::One(rate) => *rate,
            Self::Groups(groups) => groups.values().copied().fold(0.0, f64::max),
        }
    }

    /// What each weight's rate is of the largest, by names; `heads` are the fresh head's.
    ///
    /// # Errors
    /// [`TrainerError::Groups`] for a weight that is in no group, or a group without weights.
    pub(crate) fn factors<'a>(
        &self,
        weights: impl Iterator<Item = &'a str> + Clone,
        heads: &[String],
    ) -> Result<BTreeMap<String, f64>, TrainerError> {
        let Self::Groups(groups) = self else {
            return Ok(BTreeMap::new());
        };
        let most = self.most();
        let mut used: Vec<&str> = Vec::new();
        let mut factors = BTreeMap::new();
        for weight in weights.clone() {
            let (group, rate) = group(groups, weight, heads).ok_or_else(|| TrainerError::Groups {
                reason: format!("weight '{weight}' is in none of them; add {REST}"),
            })?;
            used.push(group);
            factors.insert(weight.to_owned(), rate / most);
        }
        match groups.keys().find(|group| !used.contains(&group.as_str())) {
            None => Ok(factors),
            Some(empty) if empty == REST => Ok(factors),
            Some(empty) => {
                let known: Vec<&str> = weights.take(6).collect();
                Err(TrainerError::Groups {
                    reason: format!(
                        "no weight that is trained is in '{empty}'; groups are {HEAD}, {REST} and how weights' names begin, as in {}",
                        known.join(", ")
                    ),
                })
            }
        }
    }
}

/// The group of a weight, and its rate.
fn group<'a>(groups: &'a BTreeMap<String, f64>, weight: &str, heads: &[String]) -> Option<(&'a str, f64)> {
    let named = |name: &str| groups.get_key_value(name);
    let begins = groups
        .iter()
        .filter(|(group, _)| weight.starts_with(group.as_str()))
        .max_by_key(|(group, _)| group.len());
    let head = heads
        .iter()
        .any(|head| head == weight)
        .then(|| named(HEAD))
        .flatten();
    let (group, rate) = head.or(begins).or_else(|| named(REST))?;
    Some((group, *rate))
}

impl FromStr for LearningRates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse::<f64>()
                .map_err(|_| format!("{text:?} is no number; write 0.01, or head=0.1,rest=0.01"))
        };
        if !text.contains('=') {
            return number(text).map(Self::One);
        }
        let pair = |part: &str| {
            let (group, rate) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is no <group>=<rate>"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(text: &str) -> Result<BTreeMap<String, f64>, TrainerError> {
        let weights = ["layer4.0.w", "layer4.1.w", "fc.w", "fc.b"];
        let rates: LearningRates = text.parse().unwrap();
        rates.factors(weights.into_iter(), &["fc.w".to_owned(), "fc.b".to_owned()])
    }

    #[test]
    fn weights_have_the_rate_of_their_narrowest_group() {
        let found = factors("head=0.1,rest=0.01,layer4.1=0.05").unwrap();
        let expected = [
            ("fc.b", 1.0),
            ("fc.w", 1.0),
            ("layer4.0.w", 0.1),
            ("layer4.1.w", 0.5),
        ];
        assert_eq!(found.len(), expected.len());
        for ((name, factor), (expected_name, expected)) in found.iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert!((factor - expected).abs() < 1e-12);
        }
        assert!(factors("0.1").unwrap().is_empty());
    }

    #[test]
    fn weights_without_a_group_and_groups_without_weights_are_refused() {
        assert!(
            factors("head=0.1")
                .unwrap_err()
                .to_string()
                .contains("'layer4.0.w' is in none")
        );
        assert!(
            factors("head=0.1,rest=0.1,layer9=1")
                .unwrap_err()
                .to_string()
                .contains("'layer9'")
        );
        factors("head=0.1,layer=0.1,rest=0.2").unwrap();
        assert!("head=x".parse::<LearningRates>().is_err());
        assert!("head=0,rest=0".parse::<LearningRates>().unwrap().check().is_err());
        assert!("head=1,rest=0".parse::<LearningRates>().unwrap().check().is_ok());
    }
}
