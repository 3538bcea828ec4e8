//! Tables that scroll horizontally on narrow pages.

use crate::markup::{count, escaped, shortened};

/// Maximum length of a name in characters.
const LETTERS: usize = 80;

pub(super) enum Cell {
    /// Text, which is escaped.
    Text(String),
    /// Number, which is escaped and aligned to the right.
    Number(String),
    /// Trusted markup.
    Raw(String),
}

impl Cell {
    /// Returns the shortened name of a class, a label or a number.
    pub(super) fn name(name: &str) -> Self {
        Self::Text(shortened(name, LETTERS))
    }

    /// Returns a bar for a fraction. The bar is empty if the fraction is not finite.
    pub(super) fn bar(share: f64) -> Self {
        let width = if share.is_finite() { share * 100.0 } else { 0.0 };
        Self::Raw(format!(
            r#"<div class="bars" aria-hidden="true"><span class="bar b0" style="width:{width:.1}%"></span></div>"#
        ))
    }
}

/// Rows of a table, and whether they are highlighted.
pub(super) struct PageTable<'a> {
    header: Vec<&'a str>,
    rows: Vec<(bool, Vec<Cell>)>,
    /// Number of rows without means.
    items: usize,
}

impl<'a> PageTable<'a> {
    pub(super) fn new(header: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            header: header.into_iter().collect(),
            rows: Vec::new(),
            items: 0,
        }
    }

    /// Adds the row of an item.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rated_row(false, cells);
    }

    /// Adds the row of an item, highlighted if the item is the best.
    pub(super) fn rated_row(&mut self, is_best: bool, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push((is_best, cells.into_iter().collect()));
        self.items += 1;
    }

    /// Adds a row with the means of all items.
    pub(super) fn means(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push((true, cells.into_iter().collect()));
    }

    /// Writes the table, with a note if not all items are shown. `all` is their number, and `what` their name.
    pub(super) fn write(&self, out: &mut String, all: usize, what: &str) {
        out.push_str(r#"<div class="scroll"><table><thead><tr>"#);
        for (place, name) in self.header.iter().enumerate() {
            let first = self.rows.first().and_then(|(_, cells)| cells.get(place));
            let class = if matches!(first, Some(Cell::Number(_))) {
                r#" class="n""#
            } else {
                ""
            };
            out.push_str(&format!(r#"<th scope="col"{class}>{}</th>"#, escaped(name)));
        }
        out.push_str("</tr></thead><tbody>");
        for (is_best, cells) in &self.rows {
            out.push_str(if *is_best { r#"<tr class="best">"# } else { "<tr>" });
            for (place, cell) in cells.iter().enumerate() {
                // The first cell is the heading of the row.
                let (element, scope) = match place {
                    0 => ("th", r#" scope="row""#),
                    _ => ("td", ""),
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
        add_omitted_note(out, self.items, all, what);
    }
}

/// Adds the number of shown items and the total, if items are omitted.
pub(super) fn add_omitted_note(out: &mut String, shown: usize, all: usize, what: &str) {
    if shown < all {
        let all = count(all);
        out.push_str(&format!(
            r#"<p class="soft">Showing {shown} of {all} {what}.</p>"#
        ));
    }
}

/// Adds a chart with a heading and a caption, if there is a chart.
pub(super) fn add_figure(out: &mut String, heading: &str, chart: Option<String>, caption: &str) {
    let Some(chart) = chart else {
        return;
    };
    out.push_str(&format!("<figure><h3>{}</h3>{chart}", escaped(heading)));
    if !caption.is_empty() {
        out.push_str(&format!("<figcaption>{}</figcaption>", escaped(caption)));
    }
    out.push_str("</figure>");
}
