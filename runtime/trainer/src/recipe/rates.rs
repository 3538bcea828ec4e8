use crate::{LearningRates, TrainerError};
use frostline_job::{HEAD, REST};
use std::collections::BTreeMap;

/// Returns the learning rate of each weight, relative to the largest rate. `heads` names the weights of the
/// new head.
///
/// # Errors
/// Returns [`TrainerError::Groups`] if a weight is in no group or a group contains no weights.
pub(crate) fn factors<'a>(
    rates: &LearningRates,
    weights: impl Iterator<Item = &'a str> + Clone,
    heads: &[String],
) -> Result<BTreeMap<String, f64>, TrainerError> {
    let LearningRates::Groups(groups) = rates else {
        return Ok(BTreeMap::new());
    };
    let most = rates.largest();
    let mut used: Vec<&str> = Vec::new();
    let mut factors = BTreeMap::new();
    for weight in weights.clone() {
        let (group, rate) = group(groups, weight, heads).ok_or_else(|| TrainerError::Groups {
            reason: format!("weight '{weight}' does not belong to a group; add {REST}"),
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
                    "the group '{empty}' contains no trained weight; use {HEAD}, {REST} or a prefix of weight names, for example of {}",
                    known.join(", ")
                ),
            })
        }
    }
}

/// Returns the matching group with its rate.
fn group<'a>(groups: &'a BTreeMap<String, f64>, weight: &str, heads: &[String]) -> Option<(&'a str, f64)> {
    let begins = groups
        .iter()
        .filter(|(group, _)| weight.starts_with(group.as_str()))
        .max_by_key(|(group, _)| group.len());
    let head = heads
        .iter()
        .any(|head| head == weight)
        .then(|| groups.get_key_value(HEAD))
        .flatten();
    let (group, rate) = head.or(begins).or_else(|| groups.get_key_value(REST))?;
    Some((group, *rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(text: &str) -> Result<BTreeMap<String, f64>, TrainerError> {
        let weights = ["layer4.0.w", "layer4.1.w", "fc.w", "fc.b"];
        let rates: LearningRates = text.parse().unwrap();
        super::factors(
            &rates,
            weights.into_iter(),
            &["fc.w".to_owned(), "fc.b".to_owned()],
        )
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
                .contains("'layer4.0.w' does not belong to a group")
        );
        assert!(
            factors("head=0.1,rest=0.1,layer9=1")
                .unwrap_err()
                .to_string()
                .contains("'layer9'")
        );
        factors("head=0.1,layer=0.1,rest=0.2").unwrap();
        assert!("head=x".parse::<LearningRates>().is_err());
        let error = "head=0.1,rest=0.2,head=0.001"
            .parse::<LearningRates>()
            .unwrap_err();
        assert!(error.contains("'head' is set more than once"), "{error}");
        assert!("head=1,rest=0".parse::<LearningRates>().unwrap().check().is_ok());
    }
}
