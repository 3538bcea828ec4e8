//! Charts as SVG inside a page: colours are the page's, chosen by class, so that they follow its scheme; every chart has a title that is
//! read out, and says no more than the tables beside it.

mod axis;
mod columns;
mod lines;
mod matrix;
mod strip;
mod thin;

pub(crate) use columns::{Columns, columns};
pub(crate) use lines::{Lines, Series, lines};
pub(crate) use matrix::{FULL, Matrix, matrix};
pub(crate) use strip::{area, marks, spans};

use crate::markup::escaped;

/// Colours that are told apart; what comes later is told apart by dashes.
pub(crate) const COLOURS: usize = 6;

/// How the legend shows a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Box,
    Line,
}

/// Says what each colour stands for; it wraps where a page is narrow. Entries are a series' place and its name.
pub(crate) fn legend(mark: Mark, entries: &[(usize, &str)]) -> String {
    let mut out = String::from(r#"<ul class="legend">"#);
    for (place, name) in entries {
        let colour = place % COLOURS;
        let swatch = match mark {
            Mark::Box => format!(r#"<rect class="f{colour}" width="14" height="12" y="1" rx="2"/>"#),
            Mark::Line => format!(
                r#"<path class="l{colour} d{}" d="M0 7h26"/>"#,
                place / COLOURS % 3
            ),
        };
        let width = if mark == Mark::Box { 14 } else { 26 };
        out.push_str(&format!(
            r#"<li><svg width="{width}" height="14" aria-hidden="true">{swatch}</svg>{}</li>"#,
            escaped(name)
        ));
    }
    out.push_str("</ul>");
    out
}

/// A chart's beginning: its size, its title for those who do not see it, and for those who point at it.
fn begin(class: &str, width: f64, height: f64, title: &str) -> String {
    format!(
        r#"<svg class="{class}" viewBox="0 0 {width} {height}" role="img"><title>{}</title>"#,
        escaped(title)
    )
}
