//! Metrics for single labels and numbers. Evaluations and reports share this code, so their results agree.
//! Names and formulas match scikit-learn. Ratios without samples are 0.

/// Confusion counts of a label.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Number of true positives.
    pub correct: usize,
    /// Number of samples predicted to have the label.
    pub predicted: usize,
    /// Number of samples with the label.
    pub support: usize,
}

impl Counts {
    /// Counts the samples of a label. Each item contains an output and the true value.
    pub fn count(label: &[(f32, bool)], is_yes: fn(f32) -> bool) -> Self {
        let mut counts = Self::default();
        for (output, is) in label {
            counts.add(is_yes(*output), *is);
        }
        counts
    }

    /// Adds a sample with the predicted and the true value.
    pub fn add(&mut self, said: bool, is: bool) {
        self.correct += usize::from(said && is);
        self.predicted += usize::from(said);
        self.support += usize::from(is);
    }

    /// Returns the sum of both counts.
    pub fn plus(self, other: &Self) -> Self {
        Self {
            correct: self.correct + other.correct,
            predicted: self.predicted + other.predicted,
            support: self.support + other.support,
        }
    }

    /// Returns the precision, 0 to 1.
    pub fn precision(&self) -> f64 {
        self.correct as f64 / self.predicted.max(1) as f64
    }

    /// Returns the recall, 0 to 1.
    pub fn recall(&self) -> f64 {
        self.correct as f64 / self.support.max(1) as f64
    }

    /// Returns the harmonic mean of precision and recall.
    pub fn f1(&self) -> f64 {
        2.0 * self.correct as f64 / (self.predicted + self.support).max(1) as f64
    }
}

/// Returns the average precision, `Σ (recall - previous recall) · precision` over all distinct outputs. NaN
/// ranks last. Returns `None` for a label without positive samples.
pub fn average_precision(mut label: Vec<(f32, bool)>) -> Option<f64> {
    for (output, _) in label.iter_mut().filter(|(output, _)| output.is_nan()) {
        *output = f32::NEG_INFINITY;
    }
    label.sort_by(|left, right| right.0.total_cmp(&left.0));
    let are = label.iter().filter(|(_, is)| *is).count();
    let mut right = 0;
    let mut said = 0;
    let mut sum = 0.0;
    for alike in label.chunk_by(|left, right| left.0 == right.0) {
        let more = alike.iter().filter(|(_, is)| *is).count();
        (right, said) = (right + more, said + alike.len());
        sum += more as f64 * right as f64 / said as f64;
    }
    (are > 0).then(|| sum / are as f64)
}

/// Accumulated errors and variance of a target (Welford 1962).
#[derive(Debug, Default, Clone)]
pub struct Errors {
    absolute: f64,
    squared: f64,
    count: f64,
    mean: f64,
    spread: f64,
}

impl Errors {
    /// Adds an output and the true value.
    pub fn add(&mut self, output: f64, wanted: f64) {
        let error = output - wanted;
        self.absolute += error.abs();
        self.squared += error * error;
        self.count += 1.0;
        let off = wanted - self.mean;
        self.mean += off / self.count;
        self.spread += off * (wanted - self.mean);
    }

    /// Returns the mean of the true values.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the mean absolute error.
    pub fn mae(&self) -> f64 {
        self.absolute / self.count
    }

    /// Returns the root of the mean squared error.
    pub fn rmse(&self) -> f64 {
        (self.squared / self.count).sqrt()
    }

    /// Returns the coefficient of determination. For a constant target, this is 1 if all outputs are exact
    /// and 0 otherwise, as in scikit-learn.
    pub fn r2(&self) -> f64 {
        if self.spread == 0.0 {
            return f64::from(self.squared == 0.0);
        }
        1.0 - self.squared / self.spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_nothing_is_nothing() {
        let none = Counts::default();
        assert_eq!([none.precision(), none.recall(), none.f1()], [0.0; 3]);
        assert_eq!(average_precision(vec![(0.5, false)]), None);
    }

    /// The ranking is positive, negative, positive: 1/2 · 1/1 + 1/2 · 2/3.
    #[test]
    fn a_label_is_counted_and_ranked() {
        let label = vec![(0.2, true), (3.0, true), (1.0, false)];
        let counts = Counts::count(&label, |output| output > 0.5);
        assert_eq!([counts.correct, counts.predicted, counts.support], [1, 2, 2]);
        assert_eq!([counts.precision(), counts.recall(), counts.f1()], [0.5; 3]);
        let expected = 0.5 + 0.5 * 2.0 / 3.0;
        assert!((average_precision(label).unwrap() - expected).abs() < 1e-12);
    }

    #[test]
    fn outputs_that_are_not_numbers_rank_last() {
        let ranked =
            |output| average_precision(vec![(output, true), (1.0, false), (0.5, false), (2.0, false)]);
        for output in [f32::NAN, -f32::NAN, f32::NEG_INFINITY] {
            assert_eq!(ranked(output), Some(0.25), "{output}");
        }
    }

    /// The errors are 1, -1 and 2 for targets 1, 2 and 6. The mean of the targets is 3, and the squared
    /// deviations are 4, 1 and 9.
    #[test]
    fn errors_are_measured_beside_the_spread_of_what_is_true() {
        let mut errors = Errors::default();
        for (output, wanted) in [(2.0, 1.0), (1.0, 2.0), (8.0, 6.0)] {
            errors.add(output, wanted);
        }
        let figures = [errors.mean(), errors.mae(), errors.rmse(), errors.r2()];
        let expected = [3.0, 4.0 / 3.0, 2.0_f64.sqrt(), 1.0 - 6.0 / 14.0];
        assert!(
            figures
                .iter()
                .zip(expected)
                .all(|(figure, expected)| (figure - expected).abs() < 1e-12),
            "{figures:?}"
        );
    }
}
