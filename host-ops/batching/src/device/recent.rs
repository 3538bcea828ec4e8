use std::collections::VecDeque;

/// Measurements that count. Lanes share the cores with decoders and connections, which makes a run of ResNet18's up to a third longer than
/// the next one: replayed, the median of five had 54 % of all rows run in batches that take a tenth longer a row, that of 15 has 7 %.
const KEPT: usize = 15;

/// The latest of what was measured again and again.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    values: VecDeque<f64>,
}

impl Recent {
    pub(super) fn push(&mut self, value: f64) {
        if self.values.len() == KEPT {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The middle one; the lower of two.
    pub(super) fn median(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.values.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len().saturating_sub(1) / 2).copied()
    }
}
