//! Files of a run, with bounds.

use crate::ReportError;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// A line of events at most: the names of 100,000 classes have room.
const LINE: u64 = 16 << 20;
/// A file that is read in one piece at most.
pub(crate) const WHOLE: u64 = 64 << 20;

/// A file's bytes; `None` where there is no such file.
pub(crate) fn whole(file: &Path, most: u64) -> Result<Option<Vec<u8>>, ReportError> {
    let unreadable = |error| ReportError::unreadable(file, error);
    let opened = match File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unreadable)?,
    };
    let mut bytes = Vec::new();
    opened
        .take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > most {
        let reason = format!("the file exceeds {most} bytes");
        return Err(ReportError::broken(file, 1, reason));
    }
    Ok(Some(bytes))
}

/// Hands each line that is not empty to `take`. What it says of the last one is left out where that does not end: it was cut off.
pub(crate) fn lines(
    file: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), ReportError> {
    let unreadable = |error| ReportError::unreadable(file, error);
    let mut from = BufReader::new(File::open(file).map_err(unreadable)?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = from
            .by_ref()
            .take(LINE)
            .read_until(b'\n', &mut line)
            .map_err(unreadable)?;
        let ends = line.ends_with(b"\n");
        if read as u64 == LINE && !ends {
            let reason = format!("the line exceeds {LINE} bytes");
            return Err(ReportError::broken(file, number, reason));
        }
        if read == 0 {
            break;
        }
        let text = line.trim_ascii();
        if let (false, Err(reason)) = (text.is_empty(), take(text))
            && ends
        {
            return Err(ReportError::broken(file, number, reason));
        }
    }
    Ok(())
}
