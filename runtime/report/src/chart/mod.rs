//! Charts as SVG inside a page. CSS classes select the colors, so charts follow the page's color scheme.
//! Every chart has a title for screen readers. All data of charts are also available in tables.

mod axis;
mod columns;
mod cuts;
mod frame;
mod lines;
mod links;
mod matrix;
mod sheet;
mod strip;
mod thin;

pub(crate) use columns::{Columns, columns};
pub use cuts::{Cut, Cuts, cuts};
pub(crate) use lines::{Lines, Series, lines};
pub use links::{LinkPoint, Links, links};
pub(crate) use matrix::{FULL, Matrix, matrix};
pub(crate) use strip::{area, marks, spans};

use crate::markup::escaped;
use frame::Frame;

/// Number of distinct colors. Further series use dashes.
pub(crate) const COLORS: usize = 6;

/// Symbol of a series in a legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Box,
    Line,
}

impl Mark {
    fn width(self) -> u32 {
        match self {
            Self::Box => 14,
            Self::Line => 26,
        }
    }

    fn swatch(self, place: usize) -> String {
        match self {
            Self::Box => format!(
                r#"<rect class="{}" width="14" height="12" y="1" rx="2"/>"#,
                fill(place)
            ),
            Self::Line => format!(r#"<path class="{}" d="M0 7h26"/>"#, stroke(place)),
        }
    }
}

/// Returns the CSS class for an area.
fn fill(place: usize) -> String {
    format!("f{}", place % COLORS)
}

/// Returns the CSS classes for a line. Lines are dashed if colors repeat.
fn stroke(place: usize) -> String {
    format!("l{} d{}", place % COLORS, place / COLORS % 3)
}

/// Returns a legend that wraps on narrow pages. Entries contain the color and the name of a series.
pub(crate) fn legend(mark: Mark, entries: &[(usize, &str)]) -> String {
    let entry = |(place, name): &(usize, &str)| {
        format!(
            r#"<li><svg width="{}" height="14" aria-hidden="true">{}</svg>{}</li>"#,
            mark.width(),
            mark.swatch(*place),
            escaped(name)
        )
    };
    let entries: String = entries.iter().map(entry).collect();
    format!(r#"<ul class="legend">{entries}</ul>"#)
}

/// Starts a chart. The title is used by screen readers and as a tooltip.
fn open_svg(class: &str, frame: &Frame, title: &str) -> String {
    format!(
        r#"<svg class="{class}" viewBox="0 0 {} {}" role="img"><title>{}</title>"#,
        frame.width,
        frame.height,
        escaped(title)
    )
}

fn end(mut chart: String) -> String {
    chart.push_str("</svg>");
    chart
}
