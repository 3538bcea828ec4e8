//! From seconds of segments to seconds of prefixes. Pure arithmetic.

use frostline_wire::Linear;

/// The least of a segment that is kept when its copies are taken off: they were part of it, so never all.
const LEAST: f64 = 0.1;

/// Seconds from the input to the end of each segment, when `segments` are the seconds of each alone, `bytes` the size of the tensor each
/// ends with, and `whole` the seconds of all of them run as one.
///
/// Alone, a segment copies its input in and its output out, and rearranges both; run as one, it hands them on. So what the
/// segments take too long together is taken off where one ends and the next begins, in proportion to the bytes handed on.
/// Where that does not add up, or the whole takes longer than its parts, all are scaled alike.
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
        (seconds - copies).max(seconds * LEAST)
    });
    let alone: Vec<f64> = alone.collect();
    let left: f64 = alone.iter().sum();
    let scale = if left > 0.0 { whole / left } else { 1.0 };
    let mut reached = 0.0;
    let mut add = |seconds: f64| {
        reached += seconds * scale;
        reached
    };
    alone.into_iter().map(&mut add).collect()
}

/// What a batch took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) rows: usize,
    pub(crate) seconds: f64,
}

/// The line through two measurements. Neither part of it is negative; where the noise says otherwise, the larger
/// measurement counts.
pub(crate) fn line(small: Point, large: Point) -> Linear {
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

/// The least of what was measured, zero of nothing: whatever else goes on in a machine only adds to it.
pub(crate) fn least(values: &[f64]) -> f64 {
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
        // Handing on 8 and 2 bytes costs 0.8 and 0.2 s; the last cut's own output stays.
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
        let point = |rows, seconds| Point { rows, seconds };
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
        assert_eq!(least(&[3.0, 1.0, 2.0]), 1.0);
        assert_eq!(least(&[]), 0.0);
    }
}
