//! Charts as SVG inside a page. CSS classes select the colors, so charts follow the page's color scheme.
//! Every chart has a title for screen readers. All data of charts are also available in tables.

mod axis;
mod columns;
mod cuts;
mod lines;
mod links;
mod matrix;
mod plot;
mod sheet;
mod strip;

pub(crate) use columns::{Columns, columns};
pub use cuts::{CutCost, cuts};
pub(crate) use lines::{LineChart, lines};
pub use links::links;
pub(crate) use matrix::{FULL, matrix};
pub(crate) use plot::Series;
pub(crate) use strip::{Span, area, marks, spans};

use crate::markup::escaped;

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
pub(crate) fn legend<T: AsRef<str>>(mark: Mark, entries: impl IntoIterator<Item = (usize, T)>) -> String {
    let entries = entries.into_iter().map(|(place, name)| {
        format!(
            r#"<li><svg width="{}" height="14" aria-hidden="true">{}</svg>{}</li>"#,
            mark.width(),
            mark.swatch(place),
            escaped(name.as_ref())
        )
    });
    format!(r#"<ul class="legend">{}</ul>"#, entries.collect::<String>())
}
