//! Output as JSON lines for programs, as tables for users, and as files. All output to standard output and standard
//! error passes through this module, which escapes control characters in external text to protect the
//! terminal.

use anyhow::{Context, Result};
use frostline_job::{Plain, plain_line};
use frostline_sealed::whole_file;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, StderrLock, StdoutLock, Write};
use std::path::Path;

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

/// Prints the result of a command, as a JSON object if `json` is set and otherwise as `text`.
pub(crate) fn print_result(json: bool, value: &impl Serialize, text: impl Display) -> Result<()> {
    if json {
        return Ok(print_json(value)?);
    }
    say!("{text}");
    Ok(())
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

/// Prints each value as a JSON object on a separate line, or all values as the rows of a table.
///
/// `columns` contains the titles, see [`print_table`].
pub(crate) fn print_list<T: Serialize, const N: usize>(
    values: &[T],
    json: bool,
    columns: &str,
    row: impl Fn(&T) -> [String; N],
) -> Result<()> {
    if json {
        return Ok(print_each(values)?);
    }
    print_table(columns, values.iter().map(row))
}

/// Prints a table with aligned columns. `columns` contains the titles, separated by `|`. A title with the suffix
/// `>` aligns its column to the right.
pub(crate) fn print_table<R: AsRef<[String]>>(
    columns: &str,
    rows: impl IntoIterator<Item = R>,
) -> Result<()> {
    print_columns(columns.split('|'), rows)
}

/// Prints a table like [`print_table`], with a list of titles.
pub(crate) fn print_columns<'a, R: AsRef<[String]>>(
    titles: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = R>,
) -> Result<()> {
    let rows = rows.into_iter().map(|row| {
        let cells = row.as_ref().iter();
        cells.map(|cell| plain_line(cell).into_owned()).collect()
    });
    let mut lines: Vec<Vec<String>> = rows.collect();
    let (titles, right): (Vec<String>, Vec<bool>) = titles
        .into_iter()
        .map(|title| match title.strip_suffix('>') {
            Some(title) => (title.to_owned(), true),
            None => (title.to_owned(), false),
        })
        .unzip();
    lines.insert(0, titles);
    let mut widths = vec![0; right.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut stdout = stdout();
    for line in &lines {
        let cells = line.iter().zip(&widths).zip(&right);
        let cells = cells.map(|((cell, width), right)| match right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(stdout, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Writes a file completely or not at all. The error names `what`, such as `the figure to ` or nothing, and the path.
pub(crate) fn write_file(what: &str, file: &Path, bytes: &[u8]) -> Result<()> {
    whole_file::write(file, |to| to.write_all(bytes))
        .with_context(|| format!("cannot write {what}{}", file.display()))
}

/// Formats bytes in powers of ten, such as `28.1 KB`.
pub(crate) fn bytes(count: u64) -> String {
    frostline_tensor::format_bytes(count as f64)
}
