use frostline_wire::Split;

/// A split that could be chosen, and what one sample weighs on the wire there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The split.
    pub split: Split,
    /// Payload bytes of one sample; for `none` the mean size of the objects.
    pub bytes_per_sample: u64,
}

/// A chosen split and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The candidate that was chosen.
    pub chosen: Candidate,
    /// For people.
    pub reason: String,
}

/// Chooses the candidate with the fewest bytes per sample; the earlier one where two are equal, since it leaves the host less
/// to compute. `None` without candidates.
pub fn fewest_bytes(candidates: &[Candidate]) -> Option<Plan> {
    let chosen = candidates
        .iter()
        .min_by_key(|candidate| candidate.bytes_per_sample)?;
    let others = candidates
        .iter()
        .filter(|candidate| candidate.split != chosen.split);
    let next = others.min_by_key(|candidate| candidate.bytes_per_sample);
    let raw = candidates
        .iter()
        .find(|candidate| candidate.split == Split::None && candidate.split != chosen.split);
    let mut reason = format!(
        "{} a sample at '{}'",
        amount(chosen.bytes_per_sample),
        chosen.split
    );
    match (next, raw) {
        (None, _) => reason.push_str(", the only split the guest and the settings allow"),
        (Some(next), raw) => {
            reason.push_str(&format!(
                ", the fewest bytes of {} splits; next is '{}' with {}",
                candidates.len(),
                next.split,
                amount(next.bytes_per_sample)
            ));
            if let Some(raw) = raw.filter(|raw| raw.split != next.split) {
                reason.push_str(&format!(
                    ", the objects themselves take {}",
                    amount(raw.bytes_per_sample)
                ));
            }
        }
    }
    Some(Plan {
        chosen: chosen.clone(),
        reason,
    })
}

/// Bytes for people, with three figures.
fn amount(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(list: &[(&str, u64)]) -> Vec<Candidate> {
        list.iter()
            .map(|(split, bytes)| Candidate {
                split: Split::from(*split),
                bytes_per_sample: *bytes,
            })
            .collect()
    }

    #[test]
    fn the_fewest_bytes_win() {
        let plan = fewest_bytes(&candidates(&[
            ("none", 28_100),
            ("input", 150_528),
            ("52", 346_000),
            ("features", 2048),
        ]));
        let plan = plan.unwrap();
        assert_eq!(plan.chosen.split, Split::from("features"));
        assert_eq!(
            plan.reason,
            "2.0 KB a sample at 'features', the fewest bytes of 4 splits; next is 'none' with 28.1 KB"
        );
    }

    #[test]
    fn equal_candidates_go_to_the_earlier() {
        let plan = fewest_bytes(&candidates(&[("none", 9), ("pooled", 5), ("features", 5)])).unwrap();
        assert_eq!(plan.chosen.split, Split::from("pooled"));
        assert!(
            plan.reason
                .contains("'features' with 5 B, the objects themselves take 9 B"),
            "{}",
            plan.reason
        );
    }

    #[test]
    fn a_lone_candidate_says_so() {
        let plan = fewest_bytes(&candidates(&[("features", 2048)])).unwrap();
        assert!(plan.reason.contains("the only split"), "{}", plan.reason);
        assert_eq!(fewest_bytes(&[]), None);
    }
}
