//! Reading of files with size limits.

use crate::ReportError;
use crate::error::reason;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

/// Maximum length of a line in bytes. This is enough for the names of 100,000 classes.
const LINE: u64 = 16 << 20;
/// Maximum size of a JSON file in bytes.
const WHOLE: u64 = 64 << 20;

/// Reads a JSON file. Returns `None` if the file does not exist.
pub(crate) fn json<T: DeserializeOwned>(file: &Path) -> Result<Option<T>, ReportError> {
    let Some(bytes) = whole(file, WHOLE)? else {
        return Ok(None);
    };
    let parsed = serde_json::from_slice(&bytes);
    parsed.map_err(|error| ReportError::broken(file, error.line().max(1) as u64, reason(&error)))
}

/// Reads a file of up to `most` bytes. Returns `None` if the file does not exist.
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

/// Calls `take` for each nonempty line. If the last line is not terminated, its error is ignored, because the
/// write was interrupted.
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
