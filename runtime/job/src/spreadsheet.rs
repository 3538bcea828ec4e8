//! Names in tables that spreadsheets must not treat as formulas.

use std::borrow::Cow;

/// Characters that begin a formula, or that split a cell in some spreadsheets.
const FORMULAS: [char; 4] = ['=', '@', '\t', '\r'];
/// Characters that begin a number or a name such as `-1` as well as a formula.
const SIGNS: [char; 2] = ['+', '-'];
/// Characters without which a formula cannot call a function, start a program or read another file.
const CALLS: [char; 3] = ['(', '|', '!'];

/// Prepends an apostrophe if a spreadsheet would execute `name` as a formula, or if it already looks escaped.
pub fn escape(name: &str) -> Cow<'_, str> {
    if is_formula(name.trim_start_matches('\'')) {
        format!("'{name}").into()
    } else {
        name.into()
    }
}

/// Returns the name that [`escape`] converted to `cell`.
pub fn unescape(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(name) if is_formula(name.trim_start_matches('\'')) => name,
        _ => cell,
    }
}

fn is_formula(text: &str) -> bool {
    text.starts_with(FORMULAS) || text.starts_with(SIGNS) && text.contains(CALLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_restored_and_no_cell_is_a_formula() {
        for (name, cell) in [
            ("=1+1", "'=1+1"),
            ("'=a", "''=a"),
            ("''@a", "'''@a"),
            ("-2+cmd|' /C calc'!A0", "'-2+cmd|' /C calc'!A0"),
            ("+SUM(1)", "'+SUM(1)"),
            ("-1", "-1"),
            ("-dash", "-dash"),
            ("'-1", "'-1"),
            ("a", "a"),
            ("'a", "'a"),
            ("", ""),
            ("'", "'"),
            ("+", "+"),
        ] {
            assert_eq!(escape(name), cell);
            assert_eq!(unescape(cell), name);
        }
    }
}
