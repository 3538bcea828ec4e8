//! Tables, which scroll for themselves where a page is narrow.

use crate::markup::escaped;

/// Rows of a table of classes, labels or numbers; of more, those that do worst.
const ROWS: usize = 200;
/// Letters of a name in a table.
pub(super) const LETTERS: usize = 80;

/// A cell.
pub(super) enum Cell {
    /// Words.
    Text(String),
    /// A figure, to the right.
    Number(String),
    /// Markup that is made of checked parts.
    Raw(String),
}

/// A row, and whether it is the one to look at.
pub(super) struct Row {
    pub(super) cells: Vec<Cell>,
    pub(super) best: bool,
}

/// `header` says of each column whether its cells are figures.
pub(super) fn table(header: &[(&str, bool)], rows: &[Row]) -> String {
    let mut out = String::from(r#"<div class="scroll"><table><thead><tr>"#);
    for (name, number) in header {
        let class = if *number { r#" class="n""# } else { "" };
        out.push_str(&format!(r#"<th scope="col"{class}>{}</th>"#, escaped(name)));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str(if row.best { r#"<tr class="best">"# } else { "<tr>" });
        for (place, cell) in row.cells.iter().enumerate() {
            // What the row is about stands first.
            let (element, scope) = if place == 0 {
                ("th", r#" scope="row""#)
            } else {
                ("td", "")
            };
            let (class, inside) = match cell {
                Cell::Text(text) => ("name", escaped(text)),
                Cell::Number(text) => ("n", escaped(text)),
                Cell::Raw(markup) => ("wide", markup.clone()),
            };
            out.push_str(&format!(
                r#"<{element}{scope} class="{class}">{inside}</{element}>"#
            ));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out
}

/// A share as a bar; none where it is no number.
pub(super) fn bar(share: f64) -> Cell {
    let width = if share.is_finite() { share * 100.0 } else { 0.0 };
    Cell::Raw(format!(
        r#"<div class="bars" aria-hidden="true"><span class="bar b0" style="width:{width:.1}%"></span></div>"#
    ))
}

/// Those that a table has rows for: all in their order, or of too many those that are `worth` least, the least first.
pub(super) fn shown<T>(all: &[T], worth: impl Fn(&T) -> f64) -> Vec<&T> {
    let mut shown: Vec<&T> = all.iter().collect();
    if all.len() > ROWS {
        shown.sort_by(|left, right| worth(left).total_cmp(&worth(right)));
        shown.truncate(ROWS);
    }
    shown
}

/// What there is besides the rows that are shown.
pub(super) fn more(out: &mut String, shown: usize, all: u64, what: &str) {
    if (shown as u64) < all {
        out.push_str(&format!(
            r#"<p class="soft">{shown} of {} {what} are shown.</p>"#,
            crate::markup::count(all)
        ));
    }
}
