//! What is printed: JSON lines for scripts, tables and figures for people; and the only way to standard output and standard error, through
//! which no name, refusal or error of others steers a terminal.

use frostline_job::{Plain, plain_line};
use serde::Serialize;
use std::io::{self, IsTerminal, StderrLock, StdoutLock, Write};

/// What a terminal takes to forget what it shows, and to start again at its top.
const CLEAR: &[u8] = b"\x1b[2J\x1b[H";

/// A line on standard output. Nobody misses it where that is closed.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!($crate::output::stdout(), $($words)*);
    }};
}

/// A line on standard error. Nobody is left to be told where that is closed.
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!($crate::output::stderr(), $($words)*);
    }};
}

/// Prints one JSON object on a line of its own.
///
/// A reader that went away (`| head`) has what it wanted: the command ends well, and says nothing.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    let mut stdout = stdout();
    stdout.write_all(&line)?;
    stdout.flush()
}

/// Prints a JSON object a line for each of `values`.
pub(crate) fn print_each(values: &[impl Serialize]) -> io::Result<()> {
    values.iter().try_for_each(print_json)
}

/// Standard output, until this is dropped.
#[expect(clippy::disallowed_methods, reason = "everybody else comes here")]
pub(crate) fn stdout() -> Plain<StdoutLock<'static>> {
    Plain(io::stdout().lock())
}

/// Standard error, until this is dropped.
#[expect(clippy::disallowed_methods, reason = "everybody else comes here")]
pub(crate) fn stderr() -> Plain<StderrLock<'static>> {
    Plain(io::stderr().lock())
}

/// Whether somebody looks at standard error.
pub(crate) fn is_watched() -> bool {
    stderr().0.is_terminal()
}

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    stdout().0.is_terminal()
}

/// Clears the terminal that standard output is, if it is one.
pub(crate) fn clear() -> io::Result<()> {
    let Plain(mut stdout) = stdout();
    if stdout.is_terminal() {
        stdout.write_all(CLEAR)?;
    }
    Ok(())
}

/// What somebody who wrote `name` may have meant of `known`, as the part of a sentence.
pub(crate) fn meant(name: &str, known: &[String]) -> String {
    match frostline_graph::similar(name, known.iter().map(String::as_str)).as_slice() {
        [] => String::new(),
        similar => format!(" (did you mean {}?)", similar.join(" or ")),
    }
}

/// Prints rows as a table with aligned columns; numbers, as told by `right`, are aligned right.
pub(crate) fn print_table(header: &[&str], right: &[bool], rows: &[Vec<String>]) -> io::Result<()> {
    let of_row = |row: &Vec<String>| row.iter().map(|cell| plain_line(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(of_row).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let title = header.get(column).map_or(0, |title| title.chars().count());
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
            .max(title)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let cells = cells
            .iter()
            .zip(&widths)
            .zip(right)
            .map(|((cell, width), right)| {
                if *right {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut stdout = stdout();
    writeln!(stdout, "{}", line(header.to_vec()))?;
    for row in &rows {
        writeln!(stdout, "{}", line(row.iter().map(String::as_str).collect()))?;
    }
    Ok(())
}

/// Bytes for people, in powers of ten: `28.1 KB`.
pub(crate) fn bytes(count: u64) -> String {
    frostline_tensor::shown_bytes(count as f64)
}
