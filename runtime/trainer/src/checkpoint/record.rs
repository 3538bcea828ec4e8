//! `events.jsonl`: the job's events in the format of `train --json`, with an additional time stamp.

use crate::event::warn;
use crate::{Event, Events, Quality};
use frostline_job::{LoggedEvent, plain};
use parking_lot::Mutex;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// Capacity of the queue of unwritten lines. It covers several minutes of steps if the disk is slow, and
/// needs about ten megabytes.
const WAITING: usize = 1 << 16;

/// Writes events on a dedicated thread, so that emitting an event never waits for the disk.
pub(crate) struct Recorder {
    lines: mpsc::Sender<RecorderEntry>,
}

enum RecorderEntry {
    Line(String),
    /// Answers once all earlier lines are written.
    Settle(oneshot::Sender<()>),
}

impl Recorder {
    /// Waits until all earlier events are written, or have failed.
    pub(crate) async fn settle(&self) {
        let (written, all_written) = oneshot::channel();
        if self.lines.send(RecorderEntry::Settle(written)).await.is_ok() {
            // The writer has ended if this fails; no more lines will be written.
            let _ = all_written.await;
        }
    }
}

/// Returns `events` extended by a recorder that appends each event to the file at `path`. If writing fails,
/// one warning is emitted and recording stops.
pub(super) fn recorded(path: &Path, events: &Events) -> io::Result<(Events, Recorder)> {
    let (end, before) = end_of(path)?;
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    // Discard an incomplete last line.
    file.set_len(end)?;
    file.seek(SeekFrom::End(0))?;
    recorded_to(file, path, before, events)
}

/// [`recorded`] for an open `file`. `before` is the duration of the earlier jobs of this run, in seconds.
#[expect(
    clippy::disallowed_methods,
    reason = "a job writes checkpoints on a single thread"
)]
fn recorded_to(
    file: impl Write + Send + 'static,
    path: &Path,
    before: f64,
    events: &Events,
) -> io::Result<(Events, Recorder)> {
    let (lines, waiting) = mpsc::channel(WAITING);
    let lost = format!(
        "some events are missing in {} because the disk is too slow",
        path.display()
    );
    let told = Arc::clone(events);
    let place = path.display().to_string();
    std::thread::Builder::new()
        .name("frostline-events".to_owned())
        .spawn(move || {
            write(file, waiting, |why| {
                warn(&told, format!("stopped writing events to {place}: {why}"));
            });
        })?;
    let recorder = Recorder { lines: lines.clone() };
    let events = Arc::clone(events);
    let began = Instant::now();
    // Locked until the line is queued, so that lines are ordered by time.
    let lines = Mutex::new((lines, Some(lost)));
    Ok((
        Arc::new(move |event| {
            if !event.is_progress() {
                let mut held = lines.lock();
                let line = line(&event, before + began.elapsed().as_secs_f64());
                let sent = line.map(|line| held.0.try_send(RecorderEntry::Line(line)));
                let lost = match sent {
                    Ok(Err(TrySendError::Full(_))) => held.1.take(),
                    _ => None,
                };
                drop(held);
                lost.into_iter().for_each(|lost| warn(&events, lost));
            }
            events(event);
        }),
        recorder,
    ))
}

/// Writes entries until the channel is closed. If a write fails, calls `failed` and returns.
fn write(mut file: impl Write, mut waiting: mpsc::Receiver<RecorderEntry>, failed: impl Fn(&dyn Display)) {
    while let Some(entry) = waiting.blocking_recv() {
        match entry {
            RecorderEntry::Line(line) => {
                if let Err(error) = file.write_all(line.as_bytes()) {
                    return failed(&error);
                }
            }
            RecorderEntry::Settle(written) => drop(written.send(())),
        }
    }
}

/// Formats an event as a JSON line with `at`, its time in seconds.
fn line(event: &Event, at: f64) -> serde_json::Result<String> {
    let mut line = serde_json::to_string(event)?;
    // Events are objects.
    line.truncate(line.len().saturating_sub(1));
    Ok(format!("{},\"at\":{at:.3}}}\n", plain(&line)))
}

/// Returns the end of the last complete line as a byte offset, and the last time stamp in seconds.
fn end_of(path: &Path) -> io::Result<(u64, f64)> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, 0.0)),
        file => file?,
    };
    let mut end = 0;
    let mut at = 0.0;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line)?;
        if length == 0 || line.last() != Some(&b'\n') {
            return Ok((end, at));
        }
        end += length as u64;
        at = time_of(&line).unwrap_or(at);
    }
}

/// Time of the event in this line, in seconds.
fn time_of(line: &[u8]) -> Option<f64> {
    let line = std::str::from_utf8(line).ok()?;
    let (_, at) = line.trim_end().strip_suffix('}')?.rsplit_once("\"at\":")?;
    at.parse().ok()
}

/// Completed epochs recorded in the file of a run. Unreadable lines are skipped.
pub(super) fn epochs_of(path: &Path) -> Vec<(u32, Quality)> {
    let Ok(file) = File::open(path) else {
        return Vec::new();
    };
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    let events = lines
        .filter(|line| line.starts_with(b"{\"event\":\"epoch\""))
        .filter_map(|line| LoggedEvent::parse(&line).ok()?.event);
    events
        .filter_map(|event| match event {
            Event::Epoch(ended) => Some((ended.epoch, ended.validation)),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn warning(message: &str) -> Event {
        Event::Warning {
            message: message.to_owned(),
        }
    }

    #[tokio::test]
    async fn events_are_appended_after_the_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let silent: Events = Arc::new(|_| ());
        let told = async |message: &str| {
            let (events, recorder) = recorded(&path, &silent).unwrap();
            events(warning(message));
            recorder.settle().await;
        };
        told("one").await;
        let mut text = fs::read_to_string(&path).unwrap();
        text = text.replace("\"at\":0.0", "\"at\":70.0");
        fs::write(&path, format!("{text}{{\"event\":\"war")).unwrap();
        told("two").await;
        let text = fs::read_to_string(&path).unwrap();
        let read: Vec<_> = text
            .lines()
            .map(|line| LoggedEvent::parse(line.as_bytes()).unwrap())
            .collect();
        let told: Vec<_> = read.iter().map(|line| line.event.clone().unwrap()).collect();
        assert_eq!(told, [warning("one"), warning("two")]);
        assert!(read[1].at.unwrap() >= 70.0, "{read:?}");
    }

    /// A disk that blocks all writes until the gate opens.
    struct Slow {
        gate: Option<oneshot::Receiver<()>>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(gate) = self.gate.take() {
                gate.blocking_recv().unwrap();
            }
            self.written.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn emitting_events_never_waits_for_the_disk() {
        let (open, gate) = oneshot::channel();
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let disk = Slow {
            gate: Some(gate),
            written: Arc::clone(&written),
        };
        let warned = Arc::new(Mutex::new(0));
        let log = Arc::clone(&warned);
        let told: Events = Arc::new(move |event| {
            let lost =
                matches!(event, Event::Warning { message } if message.contains("events are missing in slow"));
            *log.lock() += u32::from(lost);
        });
        let (events, recorder) = recorded_to(disk, Path::new("slow"), 0.0, &told).unwrap();
        // Exceeds the capacity of the queue. The writer already holds the first event.
        for _ in 0..WAITING + 10 {
            events(warning("told"));
        }
        assert!(written.lock().is_empty() && *warned.lock() == 1);
        open.send(()).unwrap();
        recorder.settle().await;
        let lines = written.lock().iter().filter(|byte| **byte == b'\n').count();
        assert!((WAITING..=WAITING + 1).contains(&lines), "{lines}");
    }
}
