//! `events.jsonl`: a job's events as `train --json` prints them, each with when it was.

use crate::{Event, Events, Quality};
use frostline_client::Notice;
use frostline_job::Logged;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Lines that are appended to a file as they come.
struct Record {
    file: File,
    began: Instant,
    /// What the job took before, in seconds.
    before: f64,
    failed: bool,
}

impl Record {
    fn add(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_string(event)?;
        // Events are objects.
        line.truncate(line.len().saturating_sub(1));
        let at = self.before + self.began.elapsed().as_secs_f64();
        self.file
            .write_all(format!("{line},\"at\":{at:.3}}}\n").as_bytes())
    }
}

/// Has `events` told, and what is told written to the file at `path`, after what is there. Where that fails it is said once and then left.
pub(super) fn recorded(path: &Path, events: &Events) -> io::Result<Events> {
    let (end, before) = end_of(path)?;
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    // What a job that was killed left of a line goes.
    file.set_len(end)?;
    file.seek(SeekFrom::End(0))?;
    let record = Mutex::new(Record {
        file,
        began: Instant::now(),
        before,
        failed: false,
    });
    let (events, path) = (Arc::clone(events), path.to_owned());
    Ok(Arc::new(move |event| {
        if !matches!(event, Event::Notice(Notice::Uploading { .. })) {
            let mut record = record.lock();
            if !record.failed
                && let Err(error) = record.add(&event)
            {
                record.failed = true;
                let message = format!("no more events are written to {}: {error}", path.display());
                events(Event::Warning { message });
            }
        }
        events(event);
    }))
}

/// Where the last whole line ends, and when that was.
fn end_of(path: &Path) -> io::Result<(u64, f64)> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, 0.0)),
        file => file?,
    };
    let (mut end, mut at) = (0, 0.0);
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

/// When the event of a line was.
fn time_of(line: &[u8]) -> Option<f64> {
    let line = std::str::from_utf8(line).ok()?;
    let (_, at) = line.trim_end().strip_suffix('}')?.rsplit_once("\"at\":")?;
    at.parse().ok()
}

/// The epochs that ended, in the file of a run; lines that cannot be read are left out.
pub(super) fn epochs_of(path: &Path) -> Vec<(u32, Quality)> {
    let Ok(file) = File::open(path) else {
        return Vec::new();
    };
    let lines = BufReader::new(file).split(b'\n').map_while(Result::ok);
    let events = lines
        .filter(|line| line.starts_with(b"{\"event\":\"epoch\""))
        .filter_map(|line| Logged::parse(&line).ok()?.event);
    events
        .filter_map(|event| match event {
            Event::Epoch {
                epoch, validation, ..
            } => Some((epoch, validation)),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn events_are_appended_after_the_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let silent: Events = Arc::new(|_| ());
        let warning = |message: &str| Event::Warning {
            message: message.to_owned(),
        };
        recorded(&path, &silent).unwrap()(warning("one"));
        let mut text = fs::read_to_string(&path).unwrap();
        text = text.replace("\"at\":0.0", "\"at\":70.0");
        fs::write(&path, format!("{text}{{\"event\":\"war")).unwrap();
        recorded(&path, &silent).unwrap()(warning("two"));
        let text = fs::read_to_string(&path).unwrap();
        let read: Vec<_> = text
            .lines()
            .map(|line| Logged::parse(line.as_bytes()).unwrap())
            .collect();
        let told: Vec<_> = read.iter().map(|line| line.event.clone().unwrap()).collect();
        assert_eq!(told, [warning("one"), warning("two")]);
        assert!(read[1].at.unwrap() >= 70.0, "{read:?}");
    }
}
