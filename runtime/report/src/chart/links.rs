use super::axis::Axis;
use super::frame::Side;
use super::lines::PlotArea;
use super::sheet::{self, LegendEntry};
use super::{Mark, stroke};
use crate::markup::{escaped, plain};

/// Best split for a link rate.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkPoint {
    /// Link rate in bytes per second.
    pub bytes_per_second: f64,
    /// The best split.
    pub split: String,
    /// Speed-up of the job relative to `none`.
    pub speed_up: f64,
}

/// Figure of the speed-up by link rate. Compares the best split with `none` on logarithmic axes.
#[derive(Debug)]
pub struct Links<'a> {
    /// Title of the figure.
    pub title: &'a str,
    /// Subtitle that describes the measurement.
    pub subtitle: &'a str,
    /// Points by increasing link rate.
    pub points: &'a [LinkPoint],
    /// Measured link rate in bytes per second, which is marked.
    pub measured: f64,
}

/// The figure as an SVG file.
pub fn links(chart: &Links) -> String {
    let place = plot_area(chart.points);
    let frame = &place.frame;
    let splits = splits(chart.points);
    let mut out = sheet::open_svg(frame, chart.title, chart.subtitle, &entries(&splits));
    for tick in place.up.ticks() {
        frame.level(&mut out, place.up.share(tick), &format!("{}x", plain(tick)));
    }
    for tick in place.across.ticks() {
        frame.mark(&mut out, place.across.share(tick), &rate(tick));
    }
    frame.axis_caption(&mut out, Side::Left, "speed-up over no pushdown (predicted)");
    frame.foot(&mut out, "link between the storage host and the trainer");
    measured(&mut out, &place, chart.measured);
    let pairs = chart.points.iter().zip(chart.points.iter().skip(1));
    for (from, to) in pairs {
        let at = |point: &LinkPoint| (point.bytes_per_second, point.speed_up);
        let color = splits.iter().position(|split| *split == from.split);
        out.push_str(&format!(
            "<g><title>{}: {:.2} times</title>{}</g>\n",
            escaped(&from.split),
            from.speed_up,
            place.line(&[at(from), at(to)], &stroke(color.unwrap_or_default()))
        ));
    }
    sheet::finish(out)
}

/// Returns the distinct splits in order of appearance.
fn splits(points: &[LinkPoint]) -> Vec<&str> {
    let mut splits = Vec::new();
    for point in points {
        if !splits.contains(&point.split.as_str()) {
            splits.push(point.split.as_str());
        }
    }
    splits
}

fn entries(splits: &[&str]) -> Vec<LegendEntry> {
    let entry = |(place, split): (usize, &&str)| LegendEntry {
        mark: Mark::Line,
        place,
        text: format!("best split: {split}"),
    };
    splits.iter().enumerate().map(entry).collect()
}

/// Creates axes for link rates and for speed-ups of 1 or more.
fn plot_area(points: &[LinkPoint]) -> PlotArea {
    const STEPS: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];
    let slowest = points.first().map_or(125e3, |point| point.bytes_per_second);
    let fastest = points.last().map_or(125e7, |point| point.bytes_per_second);
    let most = points.iter().map(|point| point.speed_up).fold(1.0, f64::max);
    let mut ticks = Axis::logarithmic(1.0, 1e9, &STEPS)
        .ticks()
        .collect::<Vec<_>>()
        .into_iter();
    let top = ticks.find(|tick| *tick >= most * 1.02).unwrap_or(most).max(1.5);
    // Use fewer ticks if the axis covers several powers of ten.
    let steps = if top > 30.0 { &[1.0, 2.0, 5.0][..] } else { &STEPS };
    PlotArea {
        frame: sheet::frame(470.0, 52.0),
        across: Axis::logarithmic(slowest, fastest, &[1.25]),
        up: Axis::logarithmic(1.0, top, steps),
    }
}

fn rate(bytes_per_second: f64) -> String {
    let megabits = bytes_per_second / 125e3;
    if megabits < 999.5 {
        format!("{} Mbit/s", plain(megabits))
    } else {
        format!("{} Gbit/s", plain(megabits / 1e3))
    }
}

/// Marks the link rate of the plan with a dashed line.
fn measured(out: &mut String, place: &PlotArea, rate: f64) {
    if !(place.across.low..=place.across.high).contains(&rate) {
        return;
    }
    let x = place.x(rate);
    let top = place.frame.top;
    let (beside, anchor) = if x > place.frame.width / 2.0 {
        (x - 7.0, "end")
    } else {
        (x + 7.0, "start")
    };
    out.push_str(&format!(
        r#"<path class="axis d2" d="M{x:.1} {top}V{}"/><text class="tick" x="{beside:.1}" y="{:.1}" text-anchor="{anchor}">this plan's link</text>"#,
        place.frame.base(),
        top + 14.0
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(megabits: f64, split: &str, speed_up: f64) -> LinkPoint {
        LinkPoint {
            bytes_per_second: megabits * 125e3,
            split: split.to_owned(),
            speed_up,
        }
    }

    fn drawn(title: &str, points: &[LinkPoint]) -> String {
        links(&Links {
            title,
            subtitle: "",
            points,
            measured: 125e5,
        })
    }

    #[test]
    fn every_best_split_has_a_line_and_a_name_and_breaks_nothing() {
        let points = [
            point(1.0, "b<", 40.0),
            point(100.0, "a", 8.0),
            point(1e3, "b<", 2.0),
            point(1e4, "none", 1.0),
        ];
        let svg = drawn("net & more", &points);
        for split in ["b&lt;", "a", "none"] {
            assert_eq!(svg.matches(&format!("best split: {split}<")).count(), 1, "{svg}");
        }
        assert_eq!(svg.matches(" times</title>").count(), 3);
        for label in ["1 Mbit/s", "10 Mbit/s", "100 Mbit/s", "1 Gbit/s", "10 Gbit/s"] {
            assert_eq!(svg.matches(&format!(">{label}<")).count(), 1, "{svg}");
        }
        assert!(svg.contains("net &amp; more") && svg.contains(">50x<") && !svg.contains(">100x<"));
        assert!(svg.contains("this plan's link"));
        assert!(svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"));
    }

    #[test]
    fn the_scale_begins_at_no_speed_up() {
        let place = plot_area(&[point(1.0, "a", 4.0), point(1e4, "none", 1.0)]);
        assert_eq!(
            (place.y(1.0), place.y(5.0)),
            (place.frame.base(), place.frame.top)
        );
        assert_eq!(place.up.high, 5.0);
        let none = drawn("", &[]);
        assert!(!none.contains("NaN") && !none.contains("inf"), "{none}");
    }
}
