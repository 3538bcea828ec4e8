//! What dividing a network is worth over links of any speed: the best split's speed-up over `none`, both axes logarithmic.

use super::{COLOURS, LEFT, Mark, RIGHT, TOP, WIDTH, begin, legend, plain};
use frostline_trainer::LinkPoint;
use std::fmt::Write;

const HEIGHT: f64 = 480.0;
const BOTTOM: f64 = 62.0;

/// The figure of `points`, with a mark at the link that was measured.
pub(crate) fn links(title: &str, subtitle: &str, points: &[LinkPoint], measured: f64) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = draw(&mut out, title, subtitle, points, measured);
    out
}

/// Where things go: bytes per second from left to right, speed-ups from 1 upwards.
struct Scale {
    slowest: f64,
    fastest: f64,
    top: f64,
}

impl Scale {
    fn of(points: &[LinkPoint]) -> Self {
        let rate = |point: Option<&LinkPoint>, or: f64| point.map_or(or, |point| point.bytes_per_second);
        let most = points.iter().map(|point| point.speed_up).fold(1.0, f64::max);
        Self {
            slowest: rate(points.first(), 125e3),
            fastest: rate(points.last(), 125e7),
            top: ticks().find(|tick| *tick >= most * 1.02).unwrap_or(most).max(1.5),
        }
    }

    fn x(&self, bytes_per_second: f64) -> f64 {
        let share = (bytes_per_second / self.slowest).ln() / (self.fastest / self.slowest).ln();
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, speed_up: f64) -> f64 {
        let share = speed_up.max(1.0).ln() / self.top.ln();
        baseline() - share * (baseline() - TOP)
    }
}

fn baseline() -> f64 {
    HEIGHT - BOTTOM
}

/// 1, 1.5, 2, 3, 5, 7, 10, 15 and so on.
fn ticks() -> impl Iterator<Item = f64> {
    (0..9).flat_map(|power| [1.0, 1.5, 2.0, 3.0, 5.0, 7.0].map(|step| step * 10_f64.powi(power)))
}

/// The first figure of a tick.
fn leading(tick: f64) -> f64 {
    let power = 10_f64.powf(tick.log10().floor());
    (tick / power * 10.0).round() / 10.0
}

fn draw(
    out: &mut String,
    title: &str,
    subtitle: &str,
    points: &[LinkPoint],
    measured: f64,
) -> std::fmt::Result {
    let scale = Scale::of(points);
    begin(out, HEIGHT, title, subtitle)?;
    let mut splits: Vec<String> = Vec::new();
    for point in points {
        let name = point.split.to_string();
        if !splits.contains(&name) {
            splits.push(name);
        }
    }
    let colour = |split: &str| {
        let place = splits.iter().position(|known| known == split).unwrap_or_default();
        COLOURS.get(place % COLOURS.len()).copied().unwrap_or_default()
    };
    let entries: Vec<_> = splits
        .iter()
        .map(|split| (Mark::Line, colour(split), format!("best split: {split}")))
        .collect();
    legend(out, &entries)?;
    axes(out, &scale)?;
    mark(out, &scale, measured)?;
    let pairs = points.iter().zip(points.iter().skip(1));
    for (from, to) in pairs {
        writeln!(
            out,
            r#"<path d="M{:.1} {:.1}L{:.1} {:.1}" stroke="{}" stroke-width="3.5" stroke-linecap="round"><title>{}: {:.2} times</title></path>"#,
            scale.x(from.bytes_per_second),
            scale.y(from.speed_up),
            scale.x(to.bytes_per_second),
            scale.y(to.speed_up),
            colour(&from.split.to_string()),
            super::escaped(&from.split.to_string()),
            from.speed_up,
        )?;
    }
    writeln!(out, "</svg>")
}

fn axes(out: &mut String, scale: &Scale) -> std::fmt::Result {
    let (right, base) = (WIDTH - RIGHT, baseline());
    for speed_up in ticks().take_while(|tick| *tick <= scale.top) {
        // Between two powers of ten as many as have room.
        if scale.top > 30.0 && ![1.0, 2.0, 5.0].contains(&leading(speed_up)) {
            continue;
        }
        let y = scale.y(speed_up);
        writeln!(
            out,
            r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}"/><text class="soft" x="{:.1}" y="{:.1}" text-anchor="end">{}x</text>"#,
            LEFT - 8.0,
            y + 4.0,
            plain(speed_up)
        )?;
    }
    for megabits in [1.0, 10.0, 100.0, 1e3, 1e4] {
        let x = scale.x(megabits * 125e3);
        let label = if megabits < 1e3 {
            format!("{} Mbit/s", plain(megabits))
        } else {
            format!("{} Gbit/s", plain(megabits / 1e3))
        };
        writeln!(
            out,
            r#"<line class="grid" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{base}"/><text class="soft" x="{x:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
            base + 20.0
        )?;
    }
    let (middle, across) = ((TOP + base) / 2.0, (LEFT + right) / 2.0);
    writeln!(
        out,
        r#"<text class="soft" transform="translate(22 {middle:.1}) rotate(-90)" text-anchor="middle">speed-up over no pushdown (predicted)</text>"#
    )?;
    writeln!(
        out,
        r#"<text class="soft" x="{across:.1}" y="{:.1}" text-anchor="middle">link between the storage host and the trainer</text>"#,
        HEIGHT - 16.0
    )?;
    writeln!(
        out,
        r#"<line class="axis" x1="{LEFT}" y1="{base}" x2="{right}" y2="{base}"/>"#
    )
}

/// A dashed line where the link is that the plan was made for.
fn mark(out: &mut String, scale: &Scale, measured: f64) -> std::fmt::Result {
    if !(scale.slowest..=scale.fastest).contains(&measured) {
        return Ok(());
    }
    let x = scale.x(measured);
    let (beside, anchor) = if x > WIDTH / 2.0 {
        (x - 7.0, "end")
    } else {
        (x + 7.0, "start")
    };
    writeln!(
        out,
        r#"<line class="axis" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{:.1}" stroke-dasharray="3 4"/><text class="soft" x="{beside:.1}" y="{:.1}" text-anchor="{anchor}">this plan's link</text>"#,
        baseline(),
        TOP + 14.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_wire::Split;

    fn point(megabits: f64, split: &str, speed_up: f64) -> LinkPoint {
        LinkPoint {
            bytes_per_second: megabits * 125e3,
            split: Split::from(split),
            speed_up,
        }
    }

    #[test]
    fn every_best_split_has_a_line_and_a_name_and_breaks_nothing() {
        let points = [
            point(1.0, "b<", 40.0),
            point(100.0, "a", 8.0),
            point(1e3, "b<", 2.0),
            point(1e4, "none", 1.0),
        ];
        let svg = links("net & more", "", &points, 125e5);
        for split in ["b&lt;", "a", "none"] {
            assert_eq!(svg.matches(&format!("best split: {split}<")).count(), 1, "{svg}");
        }
        assert_eq!(svg.matches("stroke-width=\"3.5\"").count(), 3);
        assert!(svg.contains("net &amp; more") && svg.contains(">50x<") && !svg.contains(">100x<"));
        assert!(svg.contains("this plan's link"));
        assert!(svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"));
    }

    #[test]
    fn the_scale_begins_at_no_speed_up() {
        let scale = Scale::of(&[point(1.0, "a", 4.0), point(1e4, "none", 1.0)]);
        assert_eq!((scale.y(1.0), scale.y(scale.top)), (baseline(), TOP));
        assert_eq!(scale.top, 5.0);
        let none = links("", "", &[], 1e6);
        assert!(!none.contains("NaN") && !none.contains("inf"), "{none}");
    }
}
