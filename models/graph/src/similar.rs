//! Names in error messages: suggestions for mistyped names, and lists of names.

use std::cmp::Ordering;

const MAX_SUGGESTIONS: usize = 6;

/// Minimum similarity of a suggestion, from 0 to 1. More than half of the letters must match: `shoes` is not
/// suggested for `gloves`.
const ALIKE: f64 = 0.55;

/// Minimum length of a substring match, in characters.
const PART: usize = 3;

const MAX_LISTED: usize = 12;

/// Returns up to six of `names` that are similar to `name`, the most similar first. Names that differ only in
/// case come first, then names that contain the other or are contained in it, then the rest by edit distance.
pub fn similar<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = name.to_lowercase();
    let mut found: Vec<(f64, &str)> = names
        .into_iter()
        .map(|known| (likeness(&wanted, &known.to_lowercase()), known))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .collect();
    found.sort_by(|(left, _), (right, _)| right.partial_cmp(left).unwrap_or(Ordering::Equal));
    found.truncate(MAX_SUGGESTIONS);
    found.into_iter().map(|(_, known)| known).collect()
}

/// Joins names for a message. Only the first twelve names are listed, followed by the number of others.
pub fn list_first(names: &[&str]) -> String {
    match names.get(..MAX_LISTED) {
        Some(first) if names.len() > MAX_LISTED => {
            format!("{} and {} more", first.join(", "), names.len() - MAX_LISTED)
        }
        _ => names.join(", "),
    }
}

/// Returns more than 2 for the same name, more than 1 if one name contains the other, and otherwise the
/// fraction of letters that match.
fn likeness(wanted: &str, known: &str) -> f64 {
    let alike = strsim::normalized_damerau_levenshtein(wanted, known);
    if wanted == known {
        return alike + 2.0;
    }
    let (short, long) = if wanted.len() < known.len() {
        (wanted, known)
    } else {
        (known, wanted)
    };
    if short.chars().count() >= PART && long.contains(short) {
        return alike + 1.0;
    }
    alike
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUTS: [&str; 9] = [
        "stem", "stage1.0", "stage1.1", "stage2.0", "stage2.1", "stage3.0", "mix", "pooled", "features",
    ];

    #[test]
    fn capitals_aside_the_same_name_comes_first() {
        assert_eq!(similar("Features", CUTS), ["features"]);
        assert_eq!(similar("MIX", CUTS), ["mix"]);
    }

    #[test]
    fn a_part_of_a_name_finds_it_and_a_slip_does() {
        let long = [
            "/layer4/layer4.0/relu_1/Relu_output_0",
            "/layer4/layer4.1/relu_1/Relu_output_0",
            "/fc/Gemm",
        ];
        assert_eq!(similar("layer4.1", long)[0], long[1]);
        assert_eq!(similar("faetures", CUTS)[0], "features");
        assert_eq!(similar("stage3", CUTS)[0], "stage3.0");
        assert_eq!(
            similar("hapi_size", ["auto", "hapi-time", "hapi-size"])[0],
            "hapi-size"
        );
    }

    #[test]
    fn unrelated_names_have_no_suggestions() {
        assert!(similar("zebra", CUTS).is_empty());
        assert!(similar("", CUTS).is_empty());
        assert!(similar("gloves", ["shoes", "dress", "hat", "longsleeve"]).is_empty());
    }

    #[test]
    fn few_are_named() {
        let many: Vec<String> = (0..40).map(|index| format!("block{index}")).collect();
        let found = similar("block", many.iter().map(String::as_str));
        assert_eq!(found.len(), MAX_SUGGESTIONS);
        assert_eq!(found[0], "block0");
    }
}
