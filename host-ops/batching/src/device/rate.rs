//! Execution rate of a stage and the efficient batch.

use super::recent::Recent;
use super::work::TIME_SLICE;
use std::time::Duration;

/// Minimum number of measurements per size for a comparison.
const ENOUGH: usize = 3;

/// Interval between probes, in batches. Each probe executes a few batches of the sizes next to the efficient
/// batch, because earlier measurements may have been disturbed or may be outdated. The interval is long
/// enough for a negligible cost and short enough for probes to influence the median. Probes also start after
/// 16, 32 and 64 batches, because the very first batches execute while the machine prepares networks and
/// opens sessions.
const PROBE: u64 = 128;
const FIRST_PROBE: u64 = 16;

/// Tolerated loss of an efficient batch, relative to the best rate.
const TOLERANCE: f64 = 0.02;

/// Maximum number of rows of a batch.
const MOST_ROWS: usize = 1024;

/// Seconds per row without measurements, chosen for a large network on a single core.
const UNKNOWN: f64 = 0.1;

/// Seconds per row, grouped by powers of two of the batch size.
#[derive(Debug, Clone, Default)]
pub(super) struct Rate {
    buckets: Vec<Recent>,
    runs: u64,
}

impl Rate {
    /// Records that a batch with `rows` rows took `time`.
    pub(super) fn note(&mut self, rows: usize, time: Duration) {
        let bucket = rows.max(1).ilog2() as usize;
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, Recent::default());
        }
        if let Some(recent) = self.buckets.get_mut(bucket) {
            recent.push(time.as_secs_f64() / rows.max(1) as f64);
        }
        self.runs += 1;
    }

    /// Returns the seconds per row of a batch with `rows` rows, measured at this size, else at the next
    /// smaller one, else at the next larger one.
    pub(super) fn per_row(&self, rows: usize) -> Option<f64> {
        let bucket = rows.max(1).ilog2() as usize;
        let below = self
            .buckets
            .iter()
            .take(bucket + 1)
            .rev()
            .find_map(Recent::median);
        below.or_else(|| self.buckets.iter().skip(bucket + 1).find_map(Recent::median))
    }

    /// Returns the expected duration of a batch with `rows` rows.
    pub(super) fn time(&self, rows: usize) -> Duration {
        let seconds = self.per_row(rows).unwrap_or(UNKNOWN) * rows as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Returns the efficient batch: the smallest size within [`TOLERANCE`] of the best rate.
    pub(super) fn efficient_batch(&self) -> usize {
        let buckets = self.buckets.iter().zip(0_u32..);
        let mut measured = buckets.filter_map(|(recent, power)| Some((recent.median()?, power)));
        let best = measured
            .clone()
            .map(|(seconds, _)| seconds)
            .fold(f64::INFINITY, f64::min);
        let good = measured.find(|(seconds, _)| *seconds * (1.0 - TOLERANCE) <= best);
        good.map_or(1, |(_, power)| 1 << power)
    }

    /// Returns the target size of the next batch: the efficient batch or a size to measure, within the time
    /// slice.
    pub(super) fn target_rows(&self) -> usize {
        let efficient = self.efficient_batch();
        let aim = match self.untried() {
            Some(rows) => rows,
            None => match self.since_probe() / ENOUGH as u64 {
                0 => efficient.div_ceil(2),
                1 => efficient * 2,
                _ => efficient,
            },
        };
        let within = self.per_row(aim).filter(|seconds| *seconds > 0.0);
        let within = within.map_or(MOST_ROWS, |seconds| (TIME_SLICE.as_secs_f64() / seconds) as usize);
        aim.min(within).clamp(1, MOST_ROWS)
    }

    /// Returns the number of batches since the last probe started.
    fn since_probe(&self) -> u64 {
        match self.runs {
            ..FIRST_PROBE => u64::MAX,
            FIRST_PROBE..PROBE => self.runs - (1 << self.runs.ilog2()),
            PROBE.. => self.runs % PROBE,
        }
    }

    /// Returns the next size to measure. Sizes double while the gain exceeds the tolerance.
    fn untried(&self) -> Option<usize> {
        let mut before = f64::INFINITY;
        for (recent, power) in self.buckets.iter().zip(0_u32..) {
            match recent.median() {
                Some(seconds) if recent.len() >= ENOUGH => {
                    if seconds > before * (1.0 - TOLERANCE) {
                        return None;
                    }
                    before = seconds;
                }
                _ => return Some(1 << power),
            }
        }
        Some(1 << self.buckets.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the state for a network that needs `millis` per row at 1, 2, 4, ... rows, with the last value
    /// for all larger batches.
    fn settled(millis: &[f64]) -> (Rate, usize) {
        let mut rate = Rate::default();
        for _ in 0..FIRST_PROBE * 2 - 1 {
            let rows = rate.target_rows();
            let each = millis.get(rows.ilog2() as usize).or(millis.last()).unwrap();
            rate.note(rows, Duration::from_secs_f64(each * rows as f64 / 1e3));
        }
        let aim = rate.target_rows();
        (rate, aim)
    }

    #[test]
    fn batches_grow_while_that_gains() {
        assert_eq!(settled(&[183.0, 190.0, 195.0, 210.0, 222.0]).1, 1, "ViT");
        assert_eq!(settled(&[28.0, 30.0, 32.0, 33.0, 34.0]).1, 1, "DenseNet121");
        assert_eq!(settled(&[13.0, 10.0, 7.9, 7.2, 6.7, 6.7]).1, 16, "AlexNet");
        assert_eq!(settled(&[10.0]).1, 1);
    }

    #[test]
    fn a_batch_ends_within_a_time_slice_if_one_row_allows_it() {
        assert_eq!(settled(&[1000.0, 600.0]).1, 1);
        let (rate, rows) = settled(&[100.0, 90.0, 80.0, 70.0, 60.0]);
        assert!(rate.time(rows) <= TIME_SLICE, "{rows}");
        assert!(rows >= 4, "{rows}");
    }

    /// Pseudorandom numbers from 0 to 1.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 11) as f64 / 2_f64.powi(53)
        }
    }

    #[test]
    fn other_load_does_not_change_the_batch_size() {
        let mut rows_of = [0; 2];
        for host in 0..20 {
            let mut rate = Rate::default();
            let mut random = Random(host);
            for _ in 0..1000 {
                let rows = rate.target_rows().min(32);
                let pays = rows <= 2;
                rows_of[usize::from(pays)] += rows;
                let alone = rows as f64 * if pays { 0.0153 } else { 0.017 } * (0.95 + random.next() / 10.0);
                // Occasionally, other work occupies the core for some milliseconds.
                let others = (0..(alone * 1e3) as usize)
                    .filter(|_| random.next() < 0.03)
                    .count();
                let time = alone + others as f64 * 0.0045;
                rate.note(rows, Duration::from_secs_f64(time));
            }
        }
        let [bad, good] = rows_of;
        assert!(
            bad * 10 < good,
            "{bad} of {} rows ran in inefficient batches",
            good + bad
        );
    }

    #[test]
    fn what_disturbed_the_first_runs_is_soon_forgotten() {
        let mut rate = Rate::default();
        for run in 0..PROBE {
            let rows = rate.target_rows();
            let each = if run < ENOUGH as u64 {
                40.0
            } else {
                20.0 + rows as f64
            };
            rate.note(rows, Duration::from_secs_f64(each * rows as f64 / 1e3));
        }
        assert_eq!(rate.efficient_batch(), 1);
    }

    #[test]
    fn neighboring_sizes_are_measured_again() {
        let (mut rate, _) = settled(&[10.0]);
        let sizes: Vec<usize> = (0..PROBE)
            .map(|_| {
                let rows = rate.target_rows();
                let each = if rows == 1 { 10.0 } else { 5.0 };
                rate.note(rows, Duration::from_secs_f64(each * rows as f64 / 1e3));
                rows
            })
            .collect();
        assert_eq!(sizes.first(), Some(&1));
        assert!(sizes.last() >= Some(&2), "{sizes:?}");
    }
}
