//! Tables that scroll horizontally on narrow pages.

use crate::markup::escaped;

/// Maximum number of classes, labels or numbers in a table.
const ROWS: usize = 200;
/// Maximum length of a name in characters.
pub(super) const LETTERS: usize = 80;

pub(super) enum Cell {
    /// Text, which is escaped.
    Text(String),
    /// Number, which is escaped and aligned to the right.
    Number(String),
    /// Trusted markup.
    Raw(String),
}

/// A row, highlighted if it is the best.
pub(super) struct Row {
    pub(super) cells: Vec<Cell>,
    pub(super) best: bool,
}

/// Returns a table. `header` contains the names of columns, and whether they are numeric.
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
            // The first cell is the heading of the row.
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

/// Returns a bar for a fraction. The bar is empty if the fraction is not finite.
pub(super) fn bar(share: f64) -> Cell {
    let width = if share.is_finite() { share * 100.0 } else { 0.0 };
    Cell::Raw(format!(
        r#"<div class="bars" aria-hidden="true"><span class="bar b0" style="width:{width:.1}%"></span></div>"#
    ))
}

/// Returns all items in order. If there are too many, returns the items with the lowest `worth` in ascending
/// order.
pub(super) fn select_rows<T>(all: &[T], worth: impl Fn(&T) -> f64) -> Vec<&T> {
    let mut shown: Vec<&T> = all.iter().collect();
    if all.len() > ROWS {
        shown.sort_by(|left, right| worth(left).total_cmp(&worth(right)));
        shown.truncate(ROWS);
    }
    shown
}

/// Adds the number of shown items and the total, if items are omitted.
pub(super) fn add_omitted_note(out: &mut String, shown: usize, all: u64, what: &str) {
    if (shown as u64) < all {
        out.push_str(&format!(
            r#"<p class="soft">Showing {shown} of {} {what}.</p>"#,
            crate::markup::count(all)
        ));
    }
}
