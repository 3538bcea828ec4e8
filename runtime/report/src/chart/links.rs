use super::axis::ValueAxis;
use super::plot::{Plot, rotated, text};
use super::{Mark, sheet, stroke};
use crate::markup::{escaped, plain};
use frostline_job::LinkPoint;

/// Draws a figure of the speed-up by link rate as an SVG file. The figure compares the best split with `none`
/// on logarithmic axes. The points are ordered by link rate. `measured` is a link rate in bytes per second that
/// is marked, and the subtitle describes the measurement.
pub fn links(title: &str, subtitle: &str, points: &[LinkPoint], measured: f64) -> String {
    let mut splits = Vec::new();
    for point in points {
        if !splits.contains(&&point.split) {
            splits.push(&point.split);
        }
    }
    let entries = splits.iter().enumerate();
    let entries: Vec<_> = entries
        .map(|(place, split)| (Mark::Line, place, format!("best split: {split}")))
        .collect();
    let frame = sheet::frame(470.0, 52.0);
    let out = sheet::open_svg(&frame, title, subtitle, &entries);
    let mut plot = Plot::new(frame, axes(points), out);
    plot.levels(|tick| format!("{}x", plain(tick)));
    plot.marks(rate);
    let middle = [18.0, (frame.top + frame.base()) / 2.0];
    rotated(
        &mut plot.out,
        "tick",
        middle,
        -90,
        "speed-up over no pushdown (predicted)",
    );
    plot.foot("link between the storage host and the trainer");
    mark_measured(&mut plot, measured);
    for (from, to) in points.iter().zip(points.iter().skip(1)) {
        let group = format!(
            "<g><title>{}: {:.2} times</title>",
            escaped(&from.split.to_string()),
            from.speed_up
        );
        let ends = [from, to].map(|point| (point.bytes_per_second, point.speed_up));
        let color = splits.iter().position(|split| **split == from.split);
        plot.out.push_str(&group);
        plot.line(&ends, &stroke(color.unwrap_or_default()));
        plot.out.push_str("</g>\n");
    }
    plot.end() + "\n"
}

/// Returns axes for link rates and for speed-ups of 1 or more.
fn axes(points: &[LinkPoint]) -> [ValueAxis; 2] {
    const STEPS: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];
    let slowest = points.first().map_or(125e3, |point| point.bytes_per_second);
    let fastest = points.last().map_or(125e7, |point| point.bytes_per_second);
    let most = points.iter().map(|point| point.speed_up).fold(1.0, f64::max);
    let all = ValueAxis::logarithmic(1.0, 1e9, &STEPS);
    let top = all
        .ticks()
        .find(|tick| *tick >= most * 1.02)
        .unwrap_or(most)
        .max(1.5);
    // Use fewer ticks if the axis covers several powers of ten.
    let steps = if top > 30.0 { &[1.0, 2.0, 5.0][..] } else { &STEPS };
    [
        ValueAxis::logarithmic(slowest, fastest, &[1.25]),
        ValueAxis::logarithmic(1.0, top, steps),
    ]
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
fn mark_measured(plot: &mut Plot, rate: f64) {
    if !(plot.across.low..=plot.across.high).contains(&rate) {
        return;
    }
    let x = plot.x(rate);
    let top = plot.frame.top;
    let line = format!(
        r#"<path class="axis d2" d="M{x:.1} {top}V{}"/>"#,
        plot.frame.base()
    );
    plot.out.push_str(&line);
    let (beside, anchor) = if x > plot.frame.width / 2.0 {
        (x - 7.0, "end")
    } else {
        (x + 7.0, "start")
    };
    text(
        &mut plot.out,
        "tick",
        [beside, top + 14.0],
        anchor,
        "this plan's link",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(megabits: f64, split: &str, speed_up: f64) -> LinkPoint {
        LinkPoint {
            bytes_per_second: megabits * 125e3,
            split: split.into(),
            speed_up,
        }
    }

    fn drawn(title: &str, points: &[LinkPoint]) -> String {
        links(title, "", points, 125e5)
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
        assert!(svg.contains("this plan&#39;s link"));
        assert!(svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"));
    }

    #[test]
    fn the_scale_begins_at_no_speed_up() {
        let [_, up] = axes(&[point(1.0, "a", 4.0), point(1e4, "none", 1.0)]);
        assert_eq!((up.share(1.0), up.share(5.0), up.high), (0.0, 1.0, 5.0));
        let none = drawn("", &[]);
        assert!(!none.contains("NaN") && !none.contains("inf"), "{none}");
    }
}
