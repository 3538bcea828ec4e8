//! Downsampling of curves.

/// Reduces `points` to a maximum of `2 * parts`. The points must be ordered from left to right.
///
/// The points are divided into `parts` ranges of equal length. The minimum and maximum of each range are
/// returned in the original order. This preserves peaks and noise, but not the mean. Shorter curves are
/// returned unchanged.
pub(crate) fn thinned(points: &[(f64, f64)], parts: usize) -> Vec<(f64, f64)> {
    if points.len() <= 2 * parts {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(2 * parts);
    let mut rest = points;
    for part in (1..=parts).rev() {
        let (run, later) = rest.split_at(rest.len() / part);
        rest = later;
        let places = run.iter().enumerate();
        let low = places
            .clone()
            .min_by(|left, right| left.1.1.total_cmp(&right.1.1));
        let high = places.max_by(|left, right| left.1.1.total_cmp(&right.1.1));
        let (Some(low), Some(high)) = (low, high) else {
            continue;
        };
        let (first, second) = if low.0 <= high.0 { (low, high) } else { (high, low) };
        kept.push(*first.1);
        if first.0 != second.0 {
            kept.push(*second.1);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_stay_and_the_number_is_bounded() {
        let mut points: Vec<(f64, f64)> = (0..100_003).map(|i| (f64::from(i), f64::from(i % 7))).collect();
        points[54_321].1 = 99.0;
        points[77_777].1 = -99.0;
        let thin = thinned(&points, 400);
        assert!(thin.len() <= 800, "{}", thin.len());
        assert!(thin.contains(&(54_321.0, 99.0)) && thin.contains(&(77_777.0, -99.0)));
        assert!(thin.is_sorted_by(|left, right| left.0 < right.0));
    }

    #[test]
    fn few_points_stay_as_they_are() {
        let points = [(0.0, 1.0), (1.0, 1.0), (2.0, 0.0)];
        assert_eq!(thinned(&points, 2), points);
        assert_eq!(thinned(&[], 2), []);
        assert_eq!(thinned(&[(0.0, 1.0); 9], 2).len(), 4);
    }
}
