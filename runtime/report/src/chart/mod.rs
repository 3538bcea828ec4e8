//! Charts as SVG inside a page: colors are the page's, chosen by class, so that they follow its scheme; every chart has a title that is
//! read out, and says no more than the tables beside it.

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

/// Colors that are told apart; what comes later is told apart by dashes.
pub(crate) const COLORS: usize = 6;

/// How a legend shows a series.
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

/// The classes of an area in the color of that place.
fn fill(place: usize) -> String {
    format!("f{}", place % COLORS)
}

/// The classes of a line in the color of that place, dashed from the second round of colors on.
fn stroke(place: usize) -> String {
    format!("l{} d{}", place % COLORS, place / COLORS % 3)
}

/// Says what each color stands for; it wraps where a page is narrow. Entries are a series' place and its name.
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

/// A chart's beginning: its size, its title for those who do not see it, and for those who point at it.
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
