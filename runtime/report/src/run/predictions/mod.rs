//! Totals of `predictions.csv`. The table has a row per validation image, and columns that depend on the
//! task.

mod classes;
mod values;

pub(crate) use classes::ClassPredictions;
pub(crate) use values::{LabelScore, Labels, TargetScore, Targets};

use crate::ReportError;
use csv::{Reader, StringRecord};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use values::Columns;

/// Maximum number of classes, labels or numbers.
const OUTPUTS: usize = 100_000;

/// Predictions for the validation images.
#[derive(Debug)]
pub(crate) enum Predictions {
    /// One class per image.
    Classes(ClassPredictions),
    /// Several labels per image.
    Labels(Labels),
    /// One number per target and image.
    Numbers(Targets),
}

impl Predictions {
    pub(crate) fn read(file: &Path) -> Result<Option<Self>, ReportError> {
        let opened = match File::open(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| ReportError::unreadable(file, error))?,
        };
        let mut rows = Reader::from_reader(opened);
        let header = rows.headers().map_err(|error| broken(file, 1, &error))?.clone();
        let refused = |reason: String| ReportError::broken(file, 1, reason);
        let mut rows = Rows { file, rows };
        if column(&header, "label").is_none() && header.iter().any(|name| name.starts_with("label:")) {
            return Ok(Some(match Columns::find(&header).map_err(refused)? {
                Columns::Labels(columns) => Self::Labels(Labels::read(columns, &mut rows)?),
                Columns::Numbers(columns) => Self::Numbers(Targets::read(columns, &mut rows)?),
            }));
        }
        let columns = classes::Columns::find(&header).map_err(refused)?;
        Ok(Some(Self::Classes(ClassPredictions::read(&columns, &mut rows)?)))
    }
}

/// Rows after the header.
struct Rows<'a> {
    file: &'a Path,
    rows: Reader<File>,
}

impl Rows<'_> {
    /// Calls `take` for each row, and adds the line to errors.
    fn each(&mut self, mut take: impl FnMut(&StringRecord) -> Result<(), String>) -> Result<(), ReportError> {
        let mut row = StringRecord::new();
        loop {
            let line = self.rows.position().line();
            let read = self.rows.read_record(&mut row);
            if !read.map_err(|error| broken(self.file, line, &error))? {
                return Ok(());
            }
            take(&row).map_err(|reason| ReportError::broken(self.file, line, reason))?;
        }
    }
}

fn column(header: &StringRecord, name: &str) -> Option<usize> {
    header.iter().position(|known| known.trim() == name)
}

fn missing(name: &str) -> String {
    format!("missing column {name:?}")
}

fn broken(file: &Path, line: u64, error: &csv::Error) -> ReportError {
    let at = error.position().map_or(line, csv::Position::line);
    let reason = match error.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => {
            format!("expected {expected_len} columns, found {len}")
        }
        csv::ErrorKind::Utf8 { .. } => "invalid UTF-8".to_owned(),
        _ => error.to_string(),
    };
    ReportError::broken(file, at.max(1), reason)
}
