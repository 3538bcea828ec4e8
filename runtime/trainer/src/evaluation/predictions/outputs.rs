//! Interprets the outputs for one sample.

use std::cmp::Ordering;

/// Returns the index of the largest output. Lower indices win ties. Returns `None` if the probabilities are
/// undefined, because an output is NaN or positive infinity, or all are negative infinity.
pub(crate) fn largest(row: &[f32]) -> Option<usize> {
    let largest = (0..row.len()).min_by(by_size(row))?;
    let is_defined = row.get(largest)?.is_finite() && !row.iter().any(|output| output.is_nan());
    is_defined.then_some(largest)
}

/// Returns the indices of the `count` largest outputs in descending order. Lower indices win ties. The outputs
/// must be numbers.
pub(crate) fn top(row: &[f32], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    let count = count.min(places.len());
    if let Some(last) = count.checked_sub(1) {
        places.select_nth_unstable_by(last, by_size(row));
    }
    places.truncate(count);
    places.sort_unstable_by(by_size(row));
    places
}

/// Orders indices by descending output, then by ascending index.
fn by_size(row: &[f32]) -> impl Fn(&usize, &usize) -> Ordering {
    move |left, right| {
        let [first, second] =
            [left, right].map(|place| row.get(*place).copied().unwrap_or(f32::NEG_INFINITY));
        second.total_cmp(&first).then(left.cmp(right))
    }
}

/// Returns the rank of an output, counted from 1: the number of larger outputs plus 1. It is the last one if
/// the probabilities are undefined.
pub(crate) fn rank(row: &[f32], place: usize) -> usize {
    match row.get(place) {
        Some(value) if largest(row).is_some() => 1 + row.iter().filter(|other| *other > value).count(),
        _ => row.len(),
    }
}

/// Softmax over the outputs of a row.
pub(crate) struct Softmax {
    largest: f64,
    sum: f64,
}

impl Softmax {
    pub(crate) fn from_row(row: &[f32]) -> Self {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max).into();
        Self {
            largest,
            sum: row.iter().map(|value| (f64::from(*value) - largest).exp()).sum(),
        }
    }

    /// Returns the probability for one of the outputs. The result is NaN if an output is NaN or positive
    /// infinity.
    pub(crate) fn probability(&self, output: f32) -> f32 {
        ((f64::from(output) - self.largest).exp() / self.sum) as f32
    }
}

/// Returns the probability of a label for a logit.
pub(crate) fn sigmoid(output: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(output)).exp())) as f32
}

/// Returns true if a label is predicted.
pub(crate) fn is_yes(output: f32) -> bool {
    output > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_decides_and_the_first_of_equals() {
        assert_eq!(largest(&[1.0, 2.0]), Some(1));
        assert_eq!(largest(&[5.0, 5.0, f32::NEG_INFINITY]), Some(0));
        assert_eq!(top(&[1.0, 7.0, 0.0, 7.0, -2.0], 3), [1, 3, 0]);
        assert_eq!(top(&[1.0, 2.0], 9), [1, 0]);
        assert!(top(&[], 5).is_empty() && top(&[1.0], 0).is_empty());
    }

    #[test]
    fn undefined_probabilities_predict_nothing() {
        let nan = f32::NAN;
        let infinite = f32::INFINITY;
        for row in [
            [nan, nan, nan],
            [5.0, nan, 1.0],
            [infinite, 1.0, 2.0],
            [-infinite; 3],
        ] {
            assert_eq!(largest(&row), None, "{row:?}");
            assert_eq!([0, 1, 2].map(|place| rank(&row, place)), [3; 3], "{row:?}");
        }
    }

    #[test]
    fn ties_count_in_the_favor_of_who_is_asked_about() {
        let row = [3.0, 5.0, 3.0, f32::NEG_INFINITY];
        assert_eq!([0, 1, 2, 3].map(|place| rank(&row, place)), [2, 1, 2, 4]);
    }

    #[test]
    fn probabilities_are_those_of_pytorch_even_of_large_outputs() {
        // Expected values are from `torch.softmax(torch.tensor([1000., 999., 990.]), 0)` and `torch.sigmoid`.
        let row = [1000.0, 999.0, 990.0];
        let softmax = Softmax::from_row(&row);
        for (output, expected) in row.iter().zip([0.731_034_04, 0.268_932_76, 3.318_894e-5]) {
            assert!((softmax.probability(*output) - expected).abs() < 1e-6);
        }
        assert!((sigmoid(2.0) - 0.880_797).abs() < 1e-6);
        assert_eq!(sigmoid(-200.0), 0.0);
        assert!(Softmax::from_row(&[1.0, f32::NAN]).probability(1.0).is_nan());
    }
}
