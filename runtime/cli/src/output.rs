//! What is printed: JSON lines for scripts; lines, tables and progress bars for people.

use frostline_client::{HostState, LeftOut, Notice};
use frostline_trainer::{Event, Received};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Prints one JSON object on a line of its own.
///
/// A reader that went away (`| head`) is no error worth a message: the next write ends us the same way.
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
    let units = ["B", "KB", "MB", "GB", "TB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {name}")
    }
}

/// Says on standard error what may matter, for commands that show no other events.
pub(crate) fn warn(event: &Event, json: bool) {
    let matters = matches!(
        event,
        Event::Notice(Notice::Host { .. })
            | Event::Notice(Notice::NoKeys { .. })
            | Event::LeftOut(_)
            | Event::Warning { .. }
            | Event::BadSample { .. }
    );
    if !matters {
        return;
    }
    if json {
        eprintln!("{}", serde_json::to_string(event).unwrap_or_default());
    } else if let Some(line) = text(event) {
        eprintln!("{line}");
    }
}

fn no_keys_line(count: u64, names: &[String]) -> String {
    let more = if count > names.len() as u64 { ", .." } else { "" };
    format!(
        "left out   {count} names in the store that are no keys, with an empty segment, dot segments, control characters or bytes that are \
         no text, or links that lead out: {}{more}",
        names.join(", ")
    )
}

fn host_line(host: &str, state: HostState, reason: &str) -> String {
    match state {
        HostState::Down => format!("host       {host} is left out: {reason}"),
        HostState::Up => format!("host       {host} is used again: {reason}"),
    }
}

/// Shows a job's events: as JSON lines, or as text with a progress bar where standard error is a terminal.
pub(crate) struct Reporter {
    json: bool,
    /// Whether standard output is for something else than events.
    beside: bool,
    bar: Mutex<Bar>,
}

/// How often a spinner turns.
const TICK: Duration = Duration::from_millis(120);

/// One bar for everything: steps, and uploads before them.
struct Bar {
    shown: ProgressBar,
    steps: u64,
}

impl Bar {
    fn follow(&mut self, event: &Event) {
        let shown = &self.shown;
        match event {
            Event::Dataset { steps_per_epoch, .. } => {
                self.steps = *steps_per_epoch as u64;
                self.show_steps();
            }
            Event::Notice(Notice::Uploading {
                what, sent, bytes, ..
            }) => {
                shown.set_style(style("{bar:30} {bytes}/{total_bytes}  {msg}  {bytes_per_sec}"));
                shown.set_length(*bytes);
                shown.set_position(*sent);
                shown.set_message(what.to_string());
            }
            Event::Measuring { what } => {
                shown.set_style(style("{spinner} measuring {msg}  {elapsed}"));
                shown.set_message(what.to_string());
                shown.reset();
                shown.enable_steady_tick(TICK);
            }
            Event::Upload { .. } | Event::Split { .. } => self.show_steps(),
            Event::Step { loss, .. } => {
                shown.inc(1);
                shown.set_message(format!("loss {loss:.4}"));
            }
            Event::Epoch { .. } => shown.reset(),
            _ => {}
        }
    }

    fn show_steps(&self) {
        self.shown.disable_steady_tick();
        self.shown
            .set_style(style("{bar:30} step {pos}/{len}  {msg}  {elapsed}"));
        self.shown.set_length(self.steps);
        self.shown.set_message("");
        self.shown.reset();
    }
}

impl Reporter {
    pub(crate) fn new(json: bool) -> Self {
        let bar = ProgressBar::new(0);
        if json || !io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self {
            json,
            beside: false,
            bar: Mutex::new(Bar { shown: bar, steps: 0 }),
        }
    }

    /// A reporter for a command that prints something else than events: only what matters and how it goes is said, on standard error.
    pub(crate) fn beside(json: bool) -> Self {
        Self {
            beside: true,
            ..Self::new(json)
        }
    }

    /// Shows one event. Output that cannot be written is dropped: the job's result does not depend on it.
    pub(crate) fn show(&self, event: &Event) {
        if self.json && self.beside {
            return warn(event, true);
        }
        if self.json {
            if !matches!(event, Event::Notice(Notice::Uploading { .. })) {
                let _ = print_json(event);
            }
            return;
        }
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.beside
            || matches!(
                event,
                Event::Measuring { .. } | Event::Notice(Notice::Uploading { .. })
            )
        {
            bar.follow(event);
        }
        if self.beside {
            bar.shown.suspend(|| warn(event, false));
        } else if let Some(line) = text(event) {
            bar.shown.suspend(|| println!("{line}"));
        }
        if let Event::Measuring { what } = event
            && bar.shown.is_hidden()
        {
            eprintln!("measuring  {what}");
        }
    }

    /// Takes the progress bar off the screen.
    pub(crate) fn finish(&self) {
        self.bar
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .shown
            .finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// An event as a line for people; steps and progress of uploads move the bar only.
fn text(event: &Event) -> Option<String> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    Some(match event {
        Event::Dataset {
            classes,
            train,
            validation,
            ..
        } => {
            format!(
                "data       {train} training and {validation} validation images in {} classes",
                classes.len()
            )
        }
        Event::Notice(Notice::NoKeys { count, names }) => no_keys_line(*count, names),
        Event::LeftOut(LeftOut { objects, first }) => {
            let more = if *objects > first.len() { ", .." } else { "" };
            format!(
                "left out   {objects} objects that are no images by their names, or in no class folder: {}{more}",
                first.join(", ")
            )
        }
        Event::Upload {
            what,
            name,
            bytes: size,
            skipped,
            seconds,
            resumed_at,
        } => {
            let (what, size) = (what.to_string(), bytes(*size));
            let resumed = resumed_at.map_or_else(String::new, |at| format!(", gone on at {}", bytes(at)));
            if *skipped {
                format!("{what:<10} {name}: there already ({size})")
            } else {
                format!("{what:<10} {name}: uploaded ({size} in {seconds:.1} s{resumed})")
            }
        }
        Event::Notice(Notice::UploadRetry {
            host,
            what,
            attempt,
            wait_seconds,
            reason,
            ..
        }) => {
            format!(
                "retry {attempt:<4} the upload of the {what} to {host} broke off ({reason}); going on in {wait_seconds:.1} s"
            )
        }
        Event::Split {
            split,
            encoding,
            bytes_per_sample,
            reason,
        } => {
            format!(
                "split      {split} as {encoding}, {} an image: {reason}",
                bytes(*bytes_per_sample)
            )
        }
        Event::Baseline {
            validation_accuracy, ..
        } => {
            format!("before     validation accuracy {}", percent(*validation_accuracy))
        }
        Event::Step { .. } | Event::Notice(Notice::Uploading { .. }) | Event::Measuring { .. } => {
            return None;
        }
        Event::Warning { message } => format!("warning    {message}"),
        Event::Epoch {
            epoch,
            loss,
            validation_accuracy,
            bytes_received,
            seconds,
            waited_seconds,
            skipped,
            ..
        } => {
            let skipped = if *skipped > 0 {
                format!(", {skipped} images skipped")
            } else {
                String::new()
            };
            format!(
                "epoch {epoch:<4} loss {loss:.4}, validation accuracy {}, {} received, {seconds:.1} s of which {waited_seconds:.1} s waiting for data{skipped}",
                percent(*validation_accuracy),
                bytes(*bytes_received)
            )
        }
        Event::Replan {
            to, encoding, reason, ..
        } => format!("replan     split {to} in {encoding}: {reason}"),
        Event::BadSample { key, message } => format!("skipped    {key}: {message}"),
        Event::Notice(Notice::Retry {
            host,
            lost,
            attempt,
            wait_seconds,
            reason,
        }) => {
            let next = if *wait_seconds > 0.0 {
                format!("asking again in {wait_seconds:.1} s")
            } else {
                "asking again at once".to_owned()
            };
            format!("retry {attempt:<4} {host} lost {lost} images ({reason}); {next}")
        }
        Event::Profile { reason, .. } => format!("profile    {reason}"),
        Event::Notice(Notice::Host { host, state, reason }) => host_line(host, *state, reason),
        Event::Done {
            model,
            validation_accuracy,
            bytes_received,
            received,
            seconds,
            ..
        } => format!(
            "done       {}: validation accuracy {}, {} received, {seconds:.1} s\nreceived   {}",
            model.display(),
            percent(*validation_accuracy),
            bytes(*bytes_received),
            by_use(received)
        ),
    })
}

/// Where received bytes went; what is nothing is left out.
fn by_use(received: &Received) -> String {
    let Received {
        listing,
        measuring,
        baseline,
        training,
        validation,
        other,
        interrupted,
    } = *received;
    let uses = [
        (listing, "for the listing"),
        (measuring, "to measure"),
        (baseline, "to validate before"),
        (training, "to train"),
        (validation, "to validate"),
        (other, "else"),
    ];
    let uses = uses.into_iter().filter(|(count, _)| *count > 0);
    let uses: Vec<String> = uses
        .map(|(count, what)| format!("{} {what}", bytes(count)))
        .collect();
    let lost = if interrupted > 0 {
        format!("; {} of it in answers that broke off", bytes(interrupted))
    } else {
        String::new()
    };
    uses.join(", ") + &lost
}

#[cfg(test)]
mod tests {
    use super::{bytes, time};

    #[test]
    fn times_read_well() {
        assert_eq!(time(1_795_324_200), "2026-11-22 05:10:00");
        assert_eq!(time(u64::MAX), u64::MAX.to_string());
    }

    #[test]
    fn bytes_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(2048), "2.0 KB");
        assert_eq!(bytes(28_100), "28.1 KB");
        assert_eq!(bytes(1_500_000_000), "1.5 GB");
    }
}
