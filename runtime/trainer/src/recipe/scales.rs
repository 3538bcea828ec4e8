//! What the values of a row are measured by: the range of each of its channels.

/// Where a row's channels lie: the first axis of maps `[channels, height, width]`, the last of tokens `[tokens, channels]`; else each value is one.
pub(super) struct Channels {
    pub(super) count: usize,
    /// Values of a channel one after the other.
    run: usize,
    /// Whether a channel has several values.
    spread: bool,
}

impl Channels {
    pub(super) fn of(row: &[usize]) -> Self {
        let (count, run, spread) = match *row {
            [channels, height, width] => (channels, height * width, height * width > 1),
            [tokens, channels] => (channels, 1, tokens > 1),
            _ => (row.iter().product(), 1, false),
        };
        Self {
            count: count.max(1),
            run: run.max(1),
            spread,
        }
    }

    pub(super) fn at(&self, place: usize) -> usize {
        place / self.run % self.count
    }

    /// The scale of each channel: its own, or that of the whole row where a channel is one value.
    pub(super) fn scales(&self, row: &[f32]) -> Vec<Scale> {
        if !self.spread {
            let mut all = Spread::default();
            row.iter().for_each(|value| all.add(*value));
            return vec![all.scale(); self.count];
        }
        let mut spreads = vec![Spread::default(); self.count];
        for (place, value) in row.iter().enumerate() {
            if let Some(spread) = spreads.get_mut(self.at(place)) {
                spread.add(*value);
            }
        }
        spreads.iter().map(Spread::scale).collect()
    }
}

/// What maps values to 0 and 1 and back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) least: f64,
    pub(super) range: f64,
    /// On the scale.
    pub(super) mean: f64,
}

/// Values on their way to a scale.
#[derive(Debug, Clone, Copy)]
struct Spread {
    least: f64,
    most: f64,
    sum: f64,
    count: u64,
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            least: f64::INFINITY,
            most: f64::NEG_INFINITY,
            sum: 0.0,
            count: 0,
        }
    }
}

impl Spread {
    fn add(&mut self, value: f32) {
        let value = f64::from(value);
        self.least = self.least.min(value);
        self.most = self.most.max(value);
        self.sum += value;
        self.count += 1;
    }

    /// Of values that are all alike, or that are no numbers, the range is 0.
    fn scale(&self) -> Scale {
        let range = self.most - self.least;
        let range = if range.is_finite() { range.max(0.0) } else { 0.0 };
        let mean = (self.sum / self.count.max(1) as f64 - self.least) / range;
        Scale {
            least: self.least,
            range,
            mean,
        }
    }
}
