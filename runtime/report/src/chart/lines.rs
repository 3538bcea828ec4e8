//! Line charts.

use super::axis::ValueAxis;
use super::plot::{Frame, Plot, Series};
use super::{Mark, legend};
use crate::markup::{hundredths, plain};

const FRAME: Frame = Frame::on_page(280.0, 58.0);

pub(crate) struct LineChart<'a> {
    /// Title of the chart.
    pub(crate) title: &'a str,
    /// Caption of the horizontal axis.
    pub(crate) across: &'a str,
    /// True if horizontal values are integers.
    pub(crate) counted: bool,
    pub(crate) series: &'a [Series],
    /// True for a legend below the chart if there are several series.
    pub(crate) has_legend: bool,
    /// True if values are fractions, which are shown as percentages.
    pub(crate) is_fraction: bool,
}

/// Draws the chart. Returns `None` if no series has a finite point.
pub(crate) fn lines(chart: &LineChart) -> Option<String> {
    let points = || chart.series.iter().flat_map(Series::finite);
    let (left, right) = range(points().map(|(x, _)| x))?;
    let (low, high) = heights(chart.series)?;
    let across = if chart.counted {
        ValueAxis::whole(left.floor().min(1.0), right.ceil(), 8)
    } else {
        ValueAxis::rounded(left.min(0.0), right, 6)
    };
    let up = ValueAxis::rounded(low, high, 5);
    let shown = if chart.is_fraction { hundredths } else { plain };
    let up = if chart.is_fraction {
        up.within(0.0, 1.0)
    } else {
        up
    };
    let mut plot = Plot::new(FRAME, [across, up], FRAME.open_svg("chart", chart.title));
    plot.levels(shown);
    plot.marks(plain);
    plot.foot(chart.across);
    let (behind, front): (Vec<_>, Vec<_>) = chart.series.iter().partition(|series| series.in_background);
    for series in behind.into_iter().chain(front) {
        plot.curve(series, shown);
    }
    let entries = chart.series.iter().map(|series| (series.place, &series.name));
    let key = if chart.has_legend && chart.series.len() > 1 {
        legend(Mark::Line, entries)
    } else {
        String::new()
    };
    Some(plot.end() + &key)
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range: Option<(f64, f64)>, value| {
        let (low, high) = range.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

/// Returns the vertical range. Up to 1 % of the points in the background may exceed the range, so that an
/// outlier does not flatten all curves.
fn heights(series: &[Series]) -> Option<(f64, f64)> {
    let values = |in_background: bool| {
        let series = series
            .iter()
            .filter(move |series| series.in_background == in_background);
        series.flat_map(Series::finite).map(|(_, y)| y)
    };
    let (low, high) = range(values(false).chain(values(true)))?;
    let mut behind: Vec<f64> = values(true).collect();
    behind.sort_by(f64::total_cmp);
    let Some(usual) = behind.get(behind.len() * 99 / 100).copied() else {
        return Some((low, high));
    };
    let most = values(false).reduce(f64::max).unwrap_or(usual);
    Some((low, high.min((usual + usual.abs() * 0.1).max(most)).max(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(series: &[Series]) -> Option<String> {
        lines(&LineChart {
            title: "loss",
            across: "epoch",
            counted: true,
            series,
            has_legend: false,
            is_fraction: false,
        })
    }

    fn series(points: Vec<(f64, f64)>, in_background: bool) -> Series {
        Series {
            in_background,
            ..Series::new("a<b", points, 0)
        }
    }

    #[test]
    fn nothing_to_draw_is_no_chart() {
        assert_eq!(chart(&[series(Vec::new(), false)]), None);
        assert_eq!(chart(&[series(vec![(1.0, f64::NAN)], false)]), None);
    }

    #[test]
    fn strange_values_leave_no_strange_figures() {
        let svg = chart(&[
            series(vec![(0.0, 1e308), (1.0, -1e308), (2.0, f64::INFINITY)], false),
            series(vec![(0.5, 3.0); 2000], true),
        ])
        .unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
    }

    #[test]
    fn negative_losses_are_not_cut_off() {
        let steps: Vec<(f64, f64)> = (0..1000)
            .map(|i| (f64::from(i) / 100.0, -10.0 - f64::from(i % 7) / 10.0))
            .collect();
        let series = [
            series(vec![(1.0, -10.5), (10.0, -10.6)], false),
            series(steps, true),
        ];
        assert_eq!(heights(&series), Some((-10.6, -10.0)));
    }

    #[test]
    fn one_bad_batch_does_not_flatten_the_others() {
        let mut steps: Vec<(f64, f64)> = (0..1000).map(|i| (f64::from(i) / 100.0, 1.0)).collect();
        steps[500].1 = 1e6;
        let svg = chart(&[series(vec![(1.0, 1.2), (10.0, 0.5)], false), series(steps, true)]).unwrap();
        assert!(!svg.contains(">1000000<") && svg.contains(">1.2<"), "{svg}");
    }
}
