//! Line charts.

use super::axis::Axis;
use super::frame::Frame;
use super::thin::thinned;
use super::{end, fill, open_svg, stroke};
use crate::markup::{escaped, plain};

const FRAME: Frame = Frame {
    width: 480.0,
    height: 280.0,
    left: 58.0,
    right: 14.0,
    top: 12.0,
    bottom: 42.0,
};
/// Number of intervals for downsampling. Each has up to two points, which is more than one point per pixel.
const PARTS: usize = 300;
/// Maximum number of points drawn as dots.
const DOTS: usize = 40;

pub(crate) struct Series {
    pub(crate) name: String,
    /// Points from left to right.
    pub(crate) points: Vec<(f64, f64)>,
    /// Index of the color.
    pub(crate) place: usize,
    /// True for a thin line in the background.
    pub(crate) in_background: bool,
}

pub(crate) struct Lines<'a> {
    /// Title of the chart.
    pub(crate) title: &'a str,
    /// Caption of the horizontal axis.
    pub(crate) across: &'a str,
    /// True if horizontal values are integers.
    pub(crate) counted: bool,
    pub(crate) series: &'a [Series],
    /// Limits of the vertical axis, such as 0 and 1 for fractions.
    pub(crate) limits: (f64, f64),
    /// Formats values on the vertical axis.
    pub(crate) shown: fn(f64) -> String,
}

/// Draws the chart. Returns `None` if no series has a finite point.
pub(crate) fn lines(chart: &Lines) -> Option<String> {
    let of = |behind: bool| {
        let series = chart
            .series
            .iter()
            .filter(move |series| series.in_background == behind);
        series.flat_map(|series| series.points.iter().copied())
    };
    let all = || {
        of(false)
            .chain(of(true))
            .filter(|(x, y)| x.is_finite() && y.is_finite())
    };
    let (left, right) = range(all().map(|(x, _)| x))?;
    let (low, high) = heights(chart, &all)?;
    let across = if chart.counted {
        Axis::whole(left.floor().min(1.0), right.ceil(), 8)
    } else {
        Axis::rounded(left.min(0.0), right, 6)
    };
    let place = PlotArea {
        frame: FRAME,
        across,
        up: Axis::rounded(low, high, 5).within(chart.limits.0, chart.limits.1),
    };
    let mut out = open_svg("chart", &FRAME, chart.title);
    for tick in place.up.ticks() {
        FRAME.level(&mut out, place.up.share(tick), &(chart.shown)(tick));
    }
    for tick in place.across.ticks() {
        FRAME.mark(&mut out, place.across.share(tick), &plain(tick));
    }
    FRAME.foot(&mut out, chart.across);
    for behind in [true, false] {
        for series in chart
            .series
            .iter()
            .filter(|series| series.in_background == behind)
        {
            place.curve(&mut out, series, chart.shown);
        }
    }
    Some(end(out))
}

/// Frame and axes of a chart.
pub(super) struct PlotArea {
    pub(super) frame: Frame,
    pub(super) across: Axis,
    pub(super) up: Axis,
}

impl PlotArea {
    pub(super) fn x(&self, value: f64) -> f64 {
        self.frame.x(self.across.share(value))
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        self.frame.y(self.up.share(value))
    }

    pub(super) fn line(&self, points: &[(f64, f64)], class: &str) -> String {
        let place = |(x, y): &(f64, f64)| format!("{:.1} {:.1}", self.x(*x), self.y(*y));
        let path: Vec<String> = points.iter().map(place).collect();
        format!(r#"<path class="{class}" d="M{}"/>"#, path.join("L"))
    }

    pub(super) fn curve(&self, out: &mut String, series: &Series, shown: fn(f64) -> String) {
        let points = series.points.iter().copied();
        let points: Vec<(f64, f64)> = points.filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        let points = thinned(&points, PARTS);
        let weight = if series.in_background { " behind" } else { "" };
        if points.len() > 1 {
            out.push_str(&self.line(&points, &format!("{}{weight}", stroke(series.place))));
        }
        if points.len() > DOTS || series.in_background {
            return;
        }
        for (x, y) in points {
            out.push_str(&format!(
                r#"<circle class="{}" cx="{:.1}" cy="{:.1}" r="3"><title>{}, {}: {}</title></circle>"#,
                fill(series.place),
                self.x(x),
                self.y(y),
                escaped(&series.name),
                plain(x),
                escaped(&shown(y))
            ));
        }
    }
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range: Option<(f64, f64)>, value| {
        let (low, high) = range.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

/// Returns the vertical range. Up to 1 % of the points in the background may exceed the range, so that an
/// outlier does not flatten all curves.
fn heights<I: Iterator<Item = (f64, f64)>>(chart: &Lines, all: &impl Fn() -> I) -> Option<(f64, f64)> {
    let (low, high) = range(all().map(|(_, y)| y))?;
    let front = chart.series.iter().filter(|series| !series.in_background);
    let front = front.flat_map(|series| series.points.iter().map(|(_, y)| *y));
    let mut behind: Vec<f64> = chart
        .series
        .iter()
        .filter(|series| series.in_background)
        .flat_map(|series| series.points.iter().map(|(_, y)| *y))
        .filter(|y| y.is_finite())
        .collect();
    behind.sort_by(f64::total_cmp);
    let Some(usual) = behind.get(behind.len() * 99 / 100).copied() else {
        return Some((low, high));
    };
    let (_, most) = range(front.filter(|y| y.is_finite())).unwrap_or((usual, usual));
    Some((low, high.min((usual + usual.abs() * 0.1).max(most)).max(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(series: &[Series]) -> Option<String> {
        lines(&Lines {
            title: "loss",
            across: "epoch",
            counted: true,
            series,
            limits: (0.0, f64::INFINITY),
            shown: plain,
        })
    }

    fn series(points: Vec<(f64, f64)>, in_background: bool) -> Series {
        Series {
            name: "a<b".to_owned(),
            points,
            place: 0,
            in_background,
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
        let chart = Lines {
            title: "loss",
            across: "epoch",
            counted: true,
            series: &[
                series(vec![(1.0, -10.5), (10.0, -10.6)], false),
                series(steps, true),
            ],
            limits: (f64::NEG_INFINITY, f64::INFINITY),
            shown: plain,
        };
        let all = || {
            chart
                .series
                .iter()
                .flat_map(|series| series.points.iter().copied())
        };
        assert_eq!(heights(&chart, &all), Some((-10.6, -10.0)));
    }

    #[test]
    fn one_bad_batch_does_not_flatten_the_others() {
        let mut steps: Vec<(f64, f64)> = (0..1000).map(|i| (f64::from(i) / 100.0, 1.0)).collect();
        steps[500].1 = 1e6;
        let svg = chart(&[series(vec![(1.0, 1.2), (10.0, 0.5)], false), series(steps, true)]).unwrap();
        assert!(!svg.contains(">1000000<") && svg.contains(">1.2<"), "{svg}");
    }
}
