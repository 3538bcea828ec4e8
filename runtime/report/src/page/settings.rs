use super::table::{Cell, Row, table};
use crate::markup::escaped;
use crate::run::Settings;

pub(super) fn section(out: &mut String, settings: &Settings) {
    if settings.rows.is_empty() {
        return;
    }
    let rows: Vec<Row> = settings
        .rows
        .iter()
        .map(|(name, value)| Row {
            cells: vec![Cell::Text(name.clone()), Cell::Raw(escaped(value))],
            best: false,
        })
        .collect();
    out.push_str(
        "<section><h2>Configuration</h2><details open=\"open\"><summary>Settings with defaults</summary>",
    );
    out.push_str(&table(&[("Setting", false), ("Value", false)], &rows));
    if settings.cut {
        out.push_str(r#"<p class="soft">config.json contains more settings.</p>"#);
    }
    out.push_str("</details></section>");
}
