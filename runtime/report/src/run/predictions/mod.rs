//! `predictions.csv`, counted: a row a validation image, whose columns tell what the model predicts.

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

/// Classes, labels or numbers that are told apart.
const OUTPUTS: usize = 100_000;

/// What a model said of the validation images.
#[derive(Debug)]
pub(crate) enum Predictions {
    /// With one class an image.
    Classes(ClassPredictions),
    /// With several labels an image.
    Labels(Labels),
    /// With numbers.
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

/// The rows below the header.
struct Rows<'a> {
    file: &'a Path,
    rows: Reader<File>,
}

impl Rows<'_> {
    /// Hands each to `take`; what it says of one is an error at that line.
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
