//! Frame, axes and elements that all charts share.

use super::axis::ValueAxis;
use super::{fill, stroke};
use crate::markup::{escaped, plain};

/// Number of intervals for downsampling. Each has up to two points, which is more than one point per pixel.
const PARTS: usize = 300;
/// Maximum number of points drawn as dots.
const DOTS: usize = 40;

/// Size of a chart and margins around the plot area.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Returns the frame of a chart with axes on a page.
    pub(super) const fn on_page(height: f64, left: f64) -> Self {
        Self {
            width: 480.0,
            height,
            left,
            right: 14.0,
            top: 12.0,
            bottom: 42.0,
        }
    }

    /// Starts a chart. The title is used by screen readers and as a tooltip.
    pub(super) fn open_svg(&self, class: &str, title: &str) -> String {
        format!(
            r#"<svg class="{class}" viewBox="0 0 {} {}" role="img"><title>{}</title>"#,
            self.width,
            self.height,
            escaped(title)
        )
    }

    /// Returns the lower edge of the plot area.
    pub(super) fn base(&self) -> f64 {
        self.height - self.bottom
    }

    /// Returns the right edge of the plot area.
    pub(super) fn edge(&self) -> f64 {
        self.width - self.right
    }
}

pub(crate) struct Series {
    pub(crate) name: String,
    /// Points from left to right.
    pub(crate) points: Vec<(f64, f64)>,
    /// Index of the color.
    pub(crate) place: usize,
    /// True for a thin line in the background.
    pub(crate) in_background: bool,
}

impl Series {
    pub(crate) fn new(name: impl Into<String>, points: Vec<(f64, f64)>, place: usize) -> Self {
        Self {
            name: name.into(),
            points,
            place,
            in_background: false,
        }
    }

    /// Returns the points without NaN and infinite values.
    pub(super) fn finite(&self) -> impl Iterator<Item = (f64, f64)> {
        let points = self.points.iter().copied();
        points.filter(|(x, y)| x.is_finite() && y.is_finite())
    }
}

/// A chart with axes, and the elements drawn so far.
pub(super) struct Plot {
    pub(super) frame: Frame,
    pub(super) across: ValueAxis,
    pub(super) up: ValueAxis,
    pub(super) out: String,
}

impl Plot {
    /// Continues the chart `out`, which was started by [`Frame::open_svg`] or as a sheet.
    pub(super) fn new(frame: Frame, [across, up]: [ValueAxis; 2], out: String) -> Self {
        Self {
            frame,
            across,
            up,
            out,
        }
    }

    pub(super) fn x(&self, value: f64) -> f64 {
        self.frame.left + self.across.share(value) * (self.frame.edge() - self.frame.left)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        self.frame.base() - self.up.share(value) * (self.frame.base() - self.frame.top)
    }

    /// Draws horizontal lines with labels at the left axis.
    pub(super) fn levels(&mut self, shown: impl Fn(f64) -> String) {
        let left = self.frame.left;
        let edge = self.frame.edge();
        for tick in self.up.ticks() {
            let y = self.y(tick);
            let line = format!(r#"<path class="grid" d="M{left} {y:.1}H{edge}"/>"#);
            self.out.push_str(&line);
            text(&mut self.out, "tick", [left - 7.0, y + 4.0], "end", &shown(tick));
        }
    }

    /// Draws ticks with labels at the lower axis.
    pub(super) fn marks(&mut self, shown: impl Fn(f64) -> String) {
        let base = self.frame.base();
        for tick in self.across.ticks() {
            let x = self.x(tick);
            let line = format!(r#"<path class="axis" d="M{x:.1} {base}v4"/>"#);
            self.out.push_str(&line);
            text(&mut self.out, "tick", [x, base + 17.0], "middle", &shown(tick));
        }
    }

    /// Draws the lower axis with a caption.
    pub(super) fn foot(&mut self, caption: &str) {
        let Frame { left, height, .. } = self.frame;
        let base = self.frame.base();
        let edge = self.frame.edge();
        let line = format!(r#"<path class="axis" d="M{left} {base}H{edge}"/>"#);
        self.out.push_str(&line);
        let middle = [(left + edge) / 2.0, height - 6.0];
        text(&mut self.out, "tick", middle, "middle", caption);
    }

    pub(super) fn line(&mut self, points: &[(f64, f64)], class: &str) {
        let path = points
            .iter()
            .map(|(x, y)| format!("{:.1} {:.1}", self.x(*x), self.y(*y)));
        let path = path.collect::<Vec<_>>().join("L");
        let path = format!(r#"<path class="{class}" d="M{path}"/>"#);
        self.out.push_str(&path);
    }

    /// Draws a line, and dots with tooltips if there are few points.
    pub(super) fn curve(&mut self, series: &Series, shown: fn(f64) -> String) {
        let points = thinned(&series.finite().collect::<Vec<_>>(), PARTS);
        let weight = if series.in_background { " behind" } else { "" };
        if points.len() > 1 {
            self.line(&points, &format!("{}{weight}", stroke(series.place)));
        }
        if points.len() > DOTS || series.in_background {
            return;
        }
        for (x, y) in points {
            let dot = format!(
                r#"<circle class="{}" cx="{:.1}" cy="{:.1}" r="3"><title>{}, {}: {}</title></circle>"#,
                fill(series.place),
                self.x(x),
                self.y(y),
                escaped(&series.name),
                plain(x),
                escaped(&shown(y))
            );
            self.out.push_str(&dot);
        }
    }

    pub(super) fn end(self) -> String {
        self.out + "</svg>"
    }
}

/// Appends a label. The anchor is `start`, `middle` or `end`.
pub(super) fn text(out: &mut String, class: &str, [x, y]: [f64; 2], anchor: &str, words: &str) {
    out.push_str(&format!(
        r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
        escaped(words)
    ));
}

/// Appends a rotated caption with its center at the given position.
pub(super) fn rotated(out: &mut String, class: &str, [x, y]: [f64; 2], degrees: i32, words: &str) {
    out.push_str(&format!(
        r#"<text class="{class}" transform="translate({x:.1} {y:.1}) rotate({degrees})" text-anchor="middle">{}</text>"#,
        escaped(words)
    ));
}

/// Appends a rectangle of a given position and size with a tooltip.
pub(super) fn rect(out: &mut String, class: &str, [x, y, wide, high]: [f64; 4], opacity: f64, title: &str) {
    out.push_str(&format!(
        r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{wide:.1}" height="{high:.1}" fill-opacity="{opacity:.2}"><title>{}</title></rect>"#,
        escaped(title)
    ));
}

/// Reduces `points` to a maximum of `2 * parts`. The points must be ordered from left to right.
///
/// The points are divided into `parts` ranges of equal length. The minimum and maximum of each range are
/// returned in the original order. This preserves peaks and noise, but not the mean. Shorter curves are
/// returned unchanged.
fn thinned(points: &[(f64, f64)], parts: usize) -> Vec<(f64, f64)> {
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
        let mut both: Vec<_> = low.into_iter().chain(high).collect();
        both.sort_by_key(|(place, _)| *place);
        both.dedup_by_key(|(place, _)| *place);
        kept.extend(both.into_iter().map(|(_, point)| *point));
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
