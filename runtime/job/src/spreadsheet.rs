//! Names in tables that spreadsheets must not treat as formulas.

use std::borrow::Cow;

/// Characters that begin a formula or split a cell in some spreadsheets.
const FORMULAS: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// Prepends an apostrophe if a spreadsheet would treat `name` as a formula, or if it already looks escaped.
pub fn escape(name: &str) -> Cow<'_, str> {
    if name.trim_start_matches('\'').starts_with(FORMULAS) {
        format!("'{name}").into()
    } else {
        name.into()
    }
}

/// Returns the name that [`escape`] converted to `cell`.
pub fn unescape(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(name) if name.trim_start_matches('\'').starts_with(FORMULAS) => name,
        _ => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_restored_and_no_cell_is_a_formula() {
        for name in ["-a", "=1+1", "'=a", "''@a", "a", "'a", "", "'", "a-b", "+"] {
            let cell = escape(name);
            assert_eq!(unescape(&cell), name);
            assert!(!cell.starts_with(FORMULAS), "{cell}");
        }
    }
}
