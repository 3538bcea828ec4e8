//! What is printed: JSON lines for scripts, tables and figures for people.

use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// A line on standard output. Nobody misses it where that is closed.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

/// A line on standard error. Nobody is left to be told where that is closed.
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

/// Prints one JSON object on a line of its own.
///
/// A reader that went away (`| head`) has what it wanted: the command ends well, and says nothing.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()
}

/// Prints a JSON object a line for each of `values`.
pub(crate) fn print_each(values: &[impl Serialize]) -> io::Result<()> {
    values.iter().try_for_each(print_json)
}

/// Whether standard error is to be in colours: for people who look at it, unless they ask for none (no-color.org).
pub(crate) fn colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A time for people, in UTC; JSON has the seconds since 1970 as they are.
pub(crate) fn time(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok();
    let at = at.and_then(|seconds| chrono::DateTime::from_timestamp(seconds, 0));
    at.map_or_else(
        || seconds.to_string(),
        |at| at.format("%Y-%m-%d %H:%M:%S").to_string(),
    )
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
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", line(header.to_vec()))?;
    for row in rows {
        writeln!(stdout, "{}", line(row.iter().map(String::as_str).collect()))?;
    }
    Ok(())
}

/// Bytes for people, in powers of ten: `28.1 KB`.
pub(crate) fn bytes(count: u64) -> String {
    frostline_tensor::shown_bytes(count as f64)
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn times_read_well() {
        assert_eq!(time(1_795_324_200), "2026-11-22 05:10:00");
        assert_eq!(time(u64::MAX), u64::MAX.to_string());
    }
}
