//! Curves over one axis.

use super::axis::Axis;
use super::thin::thinned;
use super::{COLOURS, begin};
use crate::markup::{escaped, plain};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 280.0;
/// Room for the labels of the axes.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 42.0;
/// Pairs of points of a curve: more than a chart has pixels at its usual size.
const PARTS: usize = 300;
/// Points of a curve that get a dot each.
const DOTS: usize = 40;

pub(crate) struct Series {
    pub(crate) name: String,
    /// From left to right.
    pub(crate) points: Vec<(f64, f64)>,
    /// Its colour's place.
    pub(crate) place: usize,
    /// Whether it stands behind the others, as a thin line.
    pub(crate) behind: bool,
}

pub(crate) struct Lines<'a> {
    /// What the chart shows, in a sentence.
    pub(crate) title: &'a str,
    /// Below the axis.
    pub(crate) across: &'a str,
    /// Whether what goes from left to right is counted.
    pub(crate) counted: bool,
    pub(crate) series: &'a [Series],
    /// What no value exceeds, where that is known: an axis does not either.
    pub(crate) limits: (f64, f64),
    /// How a value on the left axis reads.
    pub(crate) shown: fn(f64) -> String,
}

/// The chart; nothing where no series has a point.
pub(crate) fn lines(chart: &Lines) -> Option<String> {
    let of = |behind: bool| {
        let series = chart.series.iter().filter(move |series| series.behind == behind);
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
        Axis::of(left.min(0.0), right, 6)
    };
    let mut up = Axis::of(low, high, 5);
    let (least, most) = (up.low.max(chart.limits.0), up.high.min(chart.limits.1));
    if least < most {
        (up.low, up.high) = (least, most);
    }
    let place = Place { across, up };
    let mut out = begin("chart", WIDTH, HEIGHT, chart.title);
    axes(&mut out, &place, chart);
    for behind in [true, false] {
        for series in chart.series.iter().filter(|series| series.behind == behind) {
            curve(&mut out, &place, series, chart.shown);
        }
    }
    out.push_str("</svg>");
    Some(out)
}

struct Place {
    across: Axis,
    up: Axis,
}

impl Place {
    fn x(&self, value: f64) -> f64 {
        LEFT + self.across.share(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.up.share(value) * (HEIGHT - BOTTOM - TOP)
    }
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range: Option<(f64, f64)>, value| {
        let (low, high) = range.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    })
}

/// The heights that are shown. Of curves in the background the highest hundredth may stand out: one bad batch would flatten all the others.
fn heights<I: Iterator<Item = (f64, f64)>>(chart: &Lines, all: &impl Fn() -> I) -> Option<(f64, f64)> {
    let (low, high) = range(all().map(|(_, y)| y))?;
    let front = chart.series.iter().filter(|series| !series.behind);
    let front = front.flat_map(|series| series.points.iter().map(|(_, y)| *y));
    let mut behind: Vec<f64> = chart
        .series
        .iter()
        .filter(|series| series.behind)
        .flat_map(|series| series.points.iter().map(|(_, y)| *y))
        .filter(|y| y.is_finite())
        .collect();
    behind.sort_by(f64::total_cmp);
    let Some(usual) = behind.get(behind.len() * 99 / 100).copied() else {
        return Some((low, high));
    };
    let (_, most) = range(front.filter(|y| y.is_finite())).unwrap_or((usual, usual));
    Some((low, high.min((usual * 1.1).max(most)).max(low)))
}

fn axes(out: &mut String, place: &Place, chart: &Lines) {
    let (right, base) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in place
        .up
        .ticks()
        .filter(|tick| *tick >= place.up.low - place.up.step * 1e-6)
    {
        let y = place.y(tick);
        out.push_str(&format!(
            r#"<path class="grid" d="M{LEFT} {y:.1}H{right}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            LEFT - 7.0,
            y + 4.0,
            escaped(&(chart.shown)(tick))
        ));
    }
    for tick in place.across.ticks() {
        let x = place.x(tick);
        out.push_str(&format!(
            r#"<path class="axis" d="M{x:.1} {base}v4"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            base + 17.0,
            plain(tick)
        ));
    }
    out.push_str(&format!(
        r#"<path class="axis" d="M{LEFT} {base}H{right}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
        (LEFT + right) / 2.0,
        HEIGHT - 6.0,
        escaped(chart.across)
    ));
}

fn curve(out: &mut String, place: &Place, series: &Series, shown: fn(f64) -> String) {
    let points: Vec<(f64, f64)> = series
        .points
        .iter()
        .copied()
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .collect();
    let points = thinned(&points, PARTS);
    let path: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{:.1} {:.1}", place.x(*x), place.y(*y)))
        .collect();
    let (colour, dashes) = (series.place % COLOURS, series.place / COLOURS % 3);
    let weight = if series.behind { " behind" } else { "" };
    if points.len() > 1 {
        out.push_str(&format!(
            r#"<path class="l{colour} d{dashes}{weight}" d="M{}"/>"#,
            path.join("L")
        ));
    }
    if points.len() > DOTS || series.behind {
        return;
    }
    for (x, y) in points {
        out.push_str(&format!(
            r#"<circle class="f{colour}" cx="{:.1}" cy="{:.1}" r="3"><title>{}, {}: {}</title></circle>"#,
            place.x(x),
            place.y(y),
            escaped(&series.name),
            plain(x),
            escaped(&shown(y))
        ));
    }
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

    fn series(points: Vec<(f64, f64)>, behind: bool) -> Series {
        Series {
            name: "a<b".to_owned(),
            points,
            place: 0,
            behind,
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
    fn one_bad_batch_does_not_flatten_the_others() {
        let mut steps: Vec<(f64, f64)> = (0..1000).map(|i| (f64::from(i) / 100.0, 1.0)).collect();
        steps[500].1 = 1e6;
        let svg = chart(&[series(vec![(1.0, 1.2), (10.0, 0.5)], false), series(steps, true)]).unwrap();
        assert!(!svg.contains(">1000000<") && svg.contains(">1.2<"), "{svg}");
    }
}
