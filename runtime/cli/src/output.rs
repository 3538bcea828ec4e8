//! Output as JSON lines for programs and as tables for users. All output to standard output and standard
//! error passes through this module, which escapes control characters in external text to protect the
//! terminal.

use frostline_job::{Plain, plain_line};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, StderrLock, StdoutLock, Write};

/// Escape sequence that clears the terminal and moves the cursor to the top.
const CLEAR: &[u8] = b"\x1b[2J\x1b[H";

/// Prints a line to standard output and ignores write errors.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!($crate::output::stdout(), $($words)*);
    }};
}

/// Prints a line to standard error and ignores write errors.
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!($crate::output::stderr(), $($words)*);
    }};
}

/// Prints a JSON object on a single line.
///
/// If the reader has closed the pipe (`| head`), the error ends the command, which then exits successfully
/// without a message.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    let mut stdout = stdout();
    stdout.write_all(&line)?;
    stdout.flush()
}

/// Prints each value as a JSON object on a separate line.
pub(crate) fn print_each(values: &[impl Serialize]) -> io::Result<()> {
    values.iter().try_for_each(print_json)
}

/// Locks standard output.
#[expect(clippy::disallowed_methods, reason = "the only permitted use")]
pub(crate) fn stdout() -> Plain<StdoutLock<'static>> {
    Plain::new(io::stdout().lock())
}

/// Locks standard error.
#[expect(clippy::disallowed_methods, reason = "the only permitted use")]
pub(crate) fn stderr() -> Plain<StderrLock<'static>> {
    Plain::new(io::stderr().lock())
}

/// Returns true if standard error is a terminal.
pub(crate) fn is_watched() -> bool {
    stderr().get_mut().is_terminal()
}

/// Returns true if standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    stdout().get_mut().is_terminal()
}

/// Clears the terminal. Does nothing if standard output is not a terminal.
pub(crate) fn clear() -> io::Result<()> {
    let mut escaped = stdout();
    let terminal = escaped.get_mut();
    if terminal.is_terminal() {
        terminal.write_all(CLEAR)?;
    }
    Ok(())
}

/// Returns a suggestion for a misspelled name (` (did you mean x?)`). The result is empty if no similar name
/// is known.
pub(crate) fn meant(name: &str, known: &[String]) -> String {
    match frostline_graph::similar(name, known.iter().map(String::as_str)).as_slice() {
        [] => String::new(),
        similar => format!(" (did you mean {}?)", similar.join(" or ")),
    }
}

/// Prints a table with aligned columns. `right` selects right alignment for each column.
pub(crate) fn print_table(header: &[&str], right: &[bool], rows: &[Vec<String>]) -> io::Result<()> {
    let rows = rows
        .iter()
        .map(|row| row.iter().map(|cell| plain_line(cell).into_owned()).collect());
    let rows: Vec<Vec<String>> = rows.collect();
    let widths = header.iter().enumerate().map(|(column, title)| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max();
        widest.unwrap_or(0).max(title.chars().count())
    });
    let widths: Vec<usize> = widths.collect();
    let mut stdout = stdout();
    writeln!(stdout, "{}", table_line(header, &widths, right))?;
    for row in &rows {
        writeln!(stdout, "{}", table_line(row, &widths, right))?;
    }
    Ok(())
}

fn table_line<T: Display>(cells: &[T], widths: &[usize], right: &[bool]) -> String {
    let cells = cells.iter().zip(widths).zip(right).map(|((cell, width), right)| {
        if *right {
            format!("{cell:>width$}")
        } else {
            format!("{cell:<width$}")
        }
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// Formats bytes in powers of ten, such as `28.1 KB`.
pub(crate) fn bytes(count: u64) -> String {
    frostline_tensor::format_bytes(count as f64)
}
