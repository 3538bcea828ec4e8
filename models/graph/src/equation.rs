//! Equations of the operator `Einsum`.

/// A parsed equation. Digits represent the axes of an ellipsis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equation {
    /// Letters of the operands' axes.
    pub operands: Vec<Vec<char>>,
    /// Letters of the axes of the result.
    pub output: Vec<char>,
}

impl Equation {
    /// Parses an equation for operands with these ranks. Returns `None` if they do not fit, or if an operand
    /// or the result contains an axis twice.
    pub fn parse(text: &str, ranks: &[usize]) -> Option<Self> {
        let text: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        let (inputs, output) = match text.split_once("->") {
            Some((inputs, output)) => (inputs, Some(output)),
            None => (text.as_str(), None),
        };
        let terms: Vec<&str> = inputs.split(',').collect();
        if terms.len() != ranks.len() {
            return None;
        }
        let most = terms
            .iter()
            .zip(ranks)
            .filter_map(|(term, rank)| {
                rank.checked_sub(letter_count(term))
                    .filter(|_| term.contains("..."))
            })
            .max()
            .unwrap_or(0);
        let pairs = terms.iter().zip(ranks);
        let operands = pairs.map(|(term, rank)| letters(term, rank.checked_sub(letter_count(term))?, most));
        let operands: Vec<Vec<char>> = operands.collect::<Option<_>>()?;
        let output = match output {
            Some(output) => letters(output, if output.contains("...") { most } else { 0 }, most)?,
            None => implied(&operands, most),
        };
        let known = output
            .iter()
            .all(|letter| operands.iter().any(|operand| operand.contains(letter)));
        known.then_some(Self { operands, output })
    }
}

/// Returns the number of letters of a term, without the ellipsis.
fn letter_count(term: &str) -> usize {
    term.chars().filter(|letter| *letter != '.').count()
}

/// Returns the letters of a term. The ellipsis represents the last `open` of `most` axes.
fn letters(term: &str, open: usize, most: usize) -> Option<Vec<char>> {
    let dots = most.checked_sub(open)?..most;
    let dots: String = dots
        .filter_map(|axis| char::from_digit(u32::try_from(axis).ok()?, 10))
        .collect();
    let (before, after) = match term.split_once("...") {
        Some(parts) => parts,
        None if open == 0 => (term, ""),
        None => return None,
    };
    let all: Vec<char> = [before, &dots, after].concat().chars().collect();
    let proper = before
        .chars()
        .chain(after.chars())
        .all(|letter| letter.is_ascii_alphabetic());
    let twice = all
        .iter()
        .enumerate()
        .any(|(place, letter)| all.iter().skip(place + 1).any(|other| other == letter));
    (proper && !twice && dots.len() == open).then_some(all)
}

/// Returns the implicit output of an equation. It contains the ellipsis and then, in alphabetical order, the
/// letters with a single occurrence.
fn implied(operands: &[Vec<char>], most: usize) -> Vec<char> {
    let all: Vec<char> = operands.concat();
    let dots = (0..most).filter_map(|axis| char::from_digit(u32::try_from(axis).ok()?, 10));
    let mut single: Vec<char> = all
        .iter()
        .copied()
        .filter(|letter| letter.is_alphabetic() && all.iter().filter(|other| *other == letter).count() == 1)
        .collect();
    single.sort_unstable();
    dots.chain(single).collect()
}

#[cfg(test)]
mod tests {
    use super::Equation;

    fn parsed(text: &str, ranks: &[usize]) -> Option<(String, String)> {
        let equation = Equation::parse(text, ranks)?;
        let operands: Vec<String> = equation
            .operands
            .iter()
            .map(|letters| letters.iter().collect())
            .collect();
        Some((operands.join(","), equation.output.iter().collect()))
    }

    #[test]
    fn letters_and_ellipses_are_read() {
        let found = |operands: &str, output: &str| Some((operands.to_owned(), output.to_owned()));
        assert_eq!(parsed("bnhd, bmhd -> bhnm", &[4, 4]), found("bnhd,bmhd", "bhnm"));
        assert_eq!(parsed("...ij,jk->...ik", &[4, 2]), found("01ij,jk", "01ik"));
        assert_eq!(parsed("...i,...i->...", &[3, 2]), found("01i,1i", "01"));
        assert_eq!(parsed("ij,jk", &[2, 2]), found("ij,jk", "ik"));
    }

    #[test]
    fn invalid_equations_are_none() {
        for (text, ranks) in [
            ("ij,jk->ik", &[2, 3][..]),
            ("ij->ij", &[2, 2]),
            ("ii->i", &[2]),
            ("ij->ik", &[2]),
            ("i1->i", &[2]),
        ] {
            assert_eq!(parsed(text, ranks), None, "{text}");
        }
    }
}
