//! Tables, which scroll for themselves where a page is narrow.

use crate::markup::escaped;

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

/// What there is besides the rows that are shown.
pub(super) fn more(out: &mut String, shown: usize, all: u64, what: &str) {
    if (shown as u64) < all {
        out.push_str(&format!(
            r#"<p class="soft">{shown} of {} {what} are shown.</p>"#,
            crate::markup::count(all)
        ));
    }
}
