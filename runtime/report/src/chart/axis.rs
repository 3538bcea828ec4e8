/// Range of values with ticks at round numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ValueAxis {
    pub(crate) low: f64,
    pub(crate) high: f64,
    ticks: Vec<f64>,
    logarithmic: bool,
}

impl ValueAxis {
    /// Creates an axis that contains `low..=high`, with about `most` ticks.
    pub(crate) fn rounded(low: f64, high: f64, most: u32) -> Self {
        let (low, high) = if !(high - low).is_finite() {
            (0.0, 1.0)
        } else if low < high {
            (low, high)
        } else {
            // Center a single value.
            (low - low.abs().max(1.0) * 0.05, high + high.abs().max(1.0) * 0.05)
        };
        let step = tick(high - low, most);
        let low = (low / step + 1e-9).floor() * step;
        let high = (high / step - 1e-9).ceil() * step;
        Self::linear(low, high, step)
    }

    /// Creates an axis of integers that ends exactly at `high`.
    pub(crate) fn whole(low: f64, high: f64, most: u32) -> Self {
        let high = high.max(low + 1.0);
        Self::linear(low, high, tick(high - low, most).max(1.0))
    }

    fn linear(low: f64, high: f64, step: f64) -> Self {
        let first = (low / step - 1e-9).ceil();
        let ticks = (0..100).map(|place| (first + f64::from(place)) * step);
        Self {
            low,
            high,
            ticks: ticks.take_while(|tick| *tick <= high + step * 1e-6).collect(),
            logarithmic: false,
        }
    }

    /// Creates a logarithmic axis of positive values. The ticks are `steps` multiplied by each power of ten.
    pub(crate) fn logarithmic(low: f64, high: f64, steps: &[f64]) -> Self {
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let ticks = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        let fits = (low * (1.0 - 1e-9))..=(high * (1.0 + 1e-9));
        Self {
            low,
            high,
            ticks: ticks.filter(|tick| fits.contains(tick)).collect(),
            logarithmic: true,
        }
    }

    /// Limits the axis to `low..=high`.
    pub(crate) fn within(mut self, low: f64, high: f64) -> Self {
        let low = self.low.max(low);
        let high = self.high.min(high);
        if low < high {
            let slack = (high - low) * 1e-6;
            self.ticks
                .retain(|tick| (low - slack..=high + slack).contains(tick));
            (self.low, self.high) = (low, high);
        }
        self
    }

    /// Returns the position between 0 and 1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    pub(crate) fn ticks(&self) -> impl Iterator<Item = f64> {
        self.ticks.iter().copied()
    }
}

/// Returns the distance of ticks for up to `most` intervals: 1, 2, 5 or 10 times a power of ten.
fn tick(range: f64, most: u32) -> f64 {
    let least = (range / f64::from(most.max(1))).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * power);
    // Allow for rounding errors.
    let fits = steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9));
    fits.unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_around_the_values() {
        let axis = ValueAxis::rounded(0.13, 0.94, 5);
        let ticks: Vec<String> = axis.ticks().map(|tick| format!("{tick:.1}")).collect();
        assert_eq!(ticks, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(
            (axis.share(0.0), axis.share(1.0), axis.share(7.0)),
            (0.0, 1.0, 1.0)
        );
        let whole: Vec<f64> = ValueAxis::whole(0.0, 3.0, 8).ticks().collect();
        assert_eq!(whole, [0.0, 1.0, 2.0, 3.0]);
        let limited = ValueAxis::rounded(-0.2, 1.1, 5).within(0.0, 1.0);
        assert_eq!((limited.low, limited.high), (0.0, 1.0));
        assert_eq!(limited.ticks().next(), Some(0.0));
    }

    #[test]
    fn a_logarithmic_axis_has_ticks_at_each_power() {
        let axis = ValueAxis::logarithmic(1e3, 1e6, &[1.0]);
        assert_eq!(axis.ticks().collect::<Vec<_>>(), [1e3, 1e4, 1e5, 1e6]);
        assert!((axis.share(1e4) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!((axis.share(0.0), axis.share(1e9)), (0.0, 1.0));
        let steps: Vec<f64> = ValueAxis::logarithmic(1.0, 15.0, &[1.0, 2.0, 5.0])
            .ticks()
            .collect();
        assert_eq!(steps, [1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn degenerate_ranges_have_an_axis() {
        for (low, high) in [
            (0.5, 0.5),
            (0.0, 0.0),
            (f64::NAN, 1.0),
            (f64::INFINITY, f64::NEG_INFINITY),
            (-1e300, 1e300),
            (1e-300, 2e-300),
        ] {
            let axis = ValueAxis::rounded(low, high, 5);
            assert!(
                axis.low < axis.high && axis.ticks().count() <= 100,
                "{low} {high}: {axis:?}"
            );
            assert!(axis.share(low.max(axis.low)).is_finite());
        }
    }
}
