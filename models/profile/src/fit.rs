//! Pure functions that convert segment times to prefix times.

use frostline_wire::Linear;

/// Minimum fraction of segment time that remains after subtracting copies.
const MIN_REMAINING_FRACTION: f64 = 0.1;

/// Returns the seconds from the input to the end of each segment. The parameter `segments` contains the
/// seconds of separate segments, and `bytes` contains the sizes of output tensors. `whole` is the duration
/// when all segments are executed at once.
///
/// Separate segments copy and rearrange inputs and outputs, while a single execution passes tensors on
/// directly. Therefore, the surplus of the sum over `whole` is attributed to the boundaries between segments,
/// in proportion to the bytes at each boundary. If the results are implausible or `whole` exceeds the sum,
/// all segments are scaled by the same factor.
pub(crate) fn prefixes(segments: &[f64], bytes: &[f64], whole: f64) -> Vec<f64> {
    let sum: f64 = segments.iter().sum();
    let inner = bytes.split_last().map_or(&[][..], |(_, inner)| inner);
    let handed_on: f64 = inner.iter().sum();
    let excess = (sum - whole).max(0.0);
    let before = std::iter::once(0.0).chain(inner.iter().copied());
    let alone = segments.iter().zip(before).map(|(seconds, bytes)| {
        let copies = if handed_on > 0.0 {
            excess * bytes / handed_on
        } else {
            0.0
        };
        (seconds - copies).max(seconds * MIN_REMAINING_FRACTION)
    });
    let alone: Vec<f64> = alone.collect();
    let left: f64 = alone.iter().sum();
    let scale = if left > 0.0 { whole / left } else { 1.0 };
    let mut reached = 0.0;
    alone
        .into_iter()
        .map(&mut |seconds| {
            reached += seconds * scale;
            reached
        })
        .collect()
}

/// Duration of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchTime {
    pub(crate) rows: usize,
    pub(crate) seconds: f64,
}

impl BatchTime {
    pub(crate) fn new(rows: usize, seconds: f64) -> Self {
        Self { rows, seconds }
    }
}

/// Returns the line through two measurements. Both coefficients are nonnegative. If noise makes a coefficient
/// negative, only the larger measurement is used.
pub(crate) fn line(small: BatchTime, large: BatchTime) -> Linear {
    let through_origin = Linear {
        fixed: 0.0,
        per_sample: large.seconds / large.rows.max(1) as f64,
    };
    if large.rows <= small.rows {
        return through_origin;
    }
    let per_sample = ((large.seconds - small.seconds) / (large.rows - small.rows) as f64).max(0.0);
    let fixed = large.seconds - per_sample * large.rows as f64;
    if fixed >= 0.0 {
        Linear { fixed, per_sample }
    } else {
        through_origin
    }
}

/// Returns the minimum, or 0 without values. Other load on the machine can only increase durations.
pub(crate) fn minimum(values: &[f64]) -> f64 {
    values.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: &[f64], right: &[f64]) -> bool {
        left.len() == right.len() && left.iter().zip(right).all(|(a, b)| (a - b).abs() < 1e-9)
    }

    #[test]
    fn parts_that_make_up_the_whole_are_summed() {
        assert!(close(
            &prefixes(&[1.0, 2.0, 3.0], &[9.0, 5.0, 1.0], 6.0),
            &[1.0, 3.0, 6.0]
        ));
        assert!(close(&prefixes(&[2.0], &[7.0], 3.0), &[3.0]));
        assert!(prefixes(&[], &[], 1.0).is_empty());
    }

    #[test]
    fn what_copying_adds_is_taken_off_where_the_bytes_are() {
        // Passing on 8 and 2 bytes costs 0.8 and 0.2 s. The output of the last cut is not subtracted.
        let reached = prefixes(&[1.0, 2.8, 3.2], &[8.0, 2.0, 50.0], 6.0);
        assert!(close(&reached, &[1.0, 3.0, 6.0]), "{reached:?}");
    }

    #[test]
    fn a_whole_that_takes_longer_scales_all_alike() {
        assert!(close(&prefixes(&[1.0, 2.0], &[1.0, 1.0], 6.0), &[2.0, 6.0]));
    }

    #[test]
    fn however_wild_the_noise_cuts_stay_in_order_and_meet_the_whole() {
        let reached = prefixes(&[5.0, 0.1, 0.1], &[1e9, 1.0, 1.0], 1.0);
        assert!(reached.windows(2).all(|pair| pair[0] < pair[1]), "{reached:?}");
        assert!(reached.iter().all(|seconds| *seconds > 0.0));
        assert!((reached[2] - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_line_goes_through_both_points_and_is_never_negative() {
        let point = |rows, seconds| BatchTime { rows, seconds };
        let line_of = |small, large| line(point(2, small), point(16, large));
        assert_eq!(
            line_of(3.0, 17.0),
            Linear {
                fixed: 1.0,
                per_sample: 1.0
            }
        );
        assert_eq!(
            line_of(1.0, 16.0),
            Linear {
                fixed: 0.0,
                per_sample: 1.0
            }
        );
        assert_eq!(
            line_of(5.0, 4.0),
            Linear {
                fixed: 4.0,
                per_sample: 0.0
            }
        );
        assert_eq!(
            line(point(4, 1.0), point(4, 2.0)),
            Linear {
                fixed: 0.0,
                per_sample: 0.5
            }
        );
    }

    #[test]
    fn disturbances_do_not_count() {
        assert_eq!(minimum(&[3.0, 1.0, 2.0]), 1.0);
        assert_eq!(minimum(&[]), 0.0);
    }
}
