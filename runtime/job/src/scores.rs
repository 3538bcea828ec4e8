//! How good a network is at one label or one number, counted sample by sample: an evaluation and a report say the same of the same
//! predictions. Names and formulas are scikit-learn's; a share of nothing is 0.

/// Samples with a label, as predicted and in truth.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Predicted to have the label, and have it.
    pub correct: usize,
    /// Predicted to have it.
    pub predicted: usize,
    /// That have it.
    pub support: usize,
}

impl Counts {
    /// Of one label: outputs, and whether they should be a yes.
    pub fn count(label: &[(f32, bool)], is_yes: fn(f32) -> bool) -> Self {
        let mut counts = Self::default();
        for (output, is) in label {
            counts.add(is_yes(*output), *is);
        }
        counts
    }

    /// Counts a sample: whether the answer is yes, and whether it should be.
    pub fn add(&mut self, said: bool, is: bool) {
        self.correct += usize::from(said && is);
        self.predicted += usize::from(said);
        self.support += usize::from(is);
    }

    /// Both together.
    pub fn plus(self, other: &Self) -> Self {
        Self {
            correct: self.correct + other.correct,
            predicted: self.predicted + other.predicted,
            support: self.support + other.support,
        }
    }

    /// Share of those predicted to have the label that have it, 0 to 1.
    pub fn precision(&self) -> f64 {
        self.correct as f64 / self.predicted.max(1) as f64
    }

    /// Share of those that have the label that are predicted to, 0 to 1.
    pub fn recall(&self) -> f64 {
        self.correct as f64 / self.support.max(1) as f64
    }

    /// Harmonic mean of both.
    pub fn f1(&self) -> f64 {
        2.0 * self.correct as f64 / (self.predicted + self.support).max(1) as f64
    }
}

/// `Σ (recall - recall before) · precision` over the outputs, those that are alike together; none for a label that no sample has.
pub fn average_precision(mut label: Vec<(f32, bool)>) -> Option<f64> {
    label.sort_by(|left, right| right.0.total_cmp(&left.0));
    let are = label.iter().filter(|(_, is)| *is).count();
    let (mut right, mut said, mut sum) = (0, 0, 0.0);
    for alike in label.chunk_by(|left, right| left.0 == right.0) {
        let more = alike.iter().filter(|(_, is)| *is).count();
        (right, said) = (right + more, said + alike.len());
        sum += more as f64 * right as f64 / said as f64;
    }
    (are > 0).then(|| sum / are as f64)
}

/// The errors of one target, summed up, and how the target spreads (Welford 1962).
#[derive(Debug, Default, Clone)]
pub struct Errors {
    absolute: f64,
    squared: f64,
    count: f64,
    mean: f64,
    spread: f64,
}

impl Errors {
    /// Counts an output and what it should be.
    pub fn add(&mut self, output: f64, wanted: f64) {
        let error = output - wanted;
        self.absolute += error.abs();
        self.squared += error * error;
        self.count += 1.0;
        let off = wanted - self.mean;
        self.mean += off / self.count;
        self.spread += off * (wanted - self.mean);
    }

    /// Mean of what the outputs should be.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Mean absolute error.
    pub fn mae(&self) -> f64 {
        self.absolute / self.count
    }

    /// Root of the mean squared error.
    pub fn rmse(&self) -> f64 {
        (self.squared / self.count).sqrt()
    }

    /// Coefficient of determination. Of a target that is always the same, 1 where it is met and else 0, as scikit-learn says.
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

    /// Ranked yes, no, yes: 1/2 · 1/1 + 1/2 · 2/3.
    #[test]
    fn a_label_is_counted_and_ranked() {
        let label = vec![(0.2, true), (3.0, true), (1.0, false)];
        let counts = Counts::count(&label, |output| output > 0.5);
        assert_eq!([counts.correct, counts.predicted, counts.support], [1, 2, 2]);
        assert_eq!([counts.precision(), counts.recall(), counts.f1()], [0.5; 3]);
        let expected = 0.5 + 0.5 * 2.0 / 3.0;
        assert!((average_precision(label).unwrap() - expected).abs() < 1e-12);
    }

    /// Errors 1, -1 and 2 around targets 1, 2 and 6: their mean is 3, and their squared distances from it are 4, 1 and 9.
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
