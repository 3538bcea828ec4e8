use crate::ReportError;
use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Classes that are told apart.
const CLASSES: usize = 100_000;
/// Pairs of a class and what was taken for it that are counted.
const PAIRS: usize = 4_000_000;

/// `predictions.csv`, counted.
#[derive(Debug, Default)]
pub(crate) struct Predictions {
    /// Names of classes as they came.
    pub(crate) names: Vec<String>,
    places: HashMap<String, u32>,
    /// Samples by what they are and what they were taken for.
    pub(crate) pairs: HashMap<(u32, u32), u64>,
    pub(crate) samples: u64,
    /// Samples that say the place of the true label, and those of them where it is among the first five.
    pub(crate) ranked: u64,
    pub(crate) in_five: u64,
}

impl Predictions {
    pub(crate) fn read(file: &Path) -> Result<Option<Self>, ReportError> {
        let opened = match File::open(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| ReportError::unreadable(file, error))?,
        };
        let mut rows = csv::Reader::from_reader(opened);
        let header = rows.headers().map_err(|error| broken(file, 1, &error))?.clone();
        let column = |name: &str| header.iter().position(|known| known.trim() == name);
        // Of samples with several labels, or with numbers.
        if column("label").is_none() && header.iter().any(|known| known.starts_with("label:")) {
            return Ok(None);
        }
        let needed = |name: &str| {
            let lacks = || ReportError::broken(file, 1, format!("missing column {name:?}"));
            column(name).ok_or_else(lacks)
        };
        let (label, predicted, rank) = (needed("label")?, needed("predicted")?, column("rank"));
        let mut predictions = Self::default();
        let mut row = csv::StringRecord::new();
        loop {
            let line = rows.position().line();
            if !rows
                .read_record(&mut row)
                .map_err(|error| broken(file, line, &error))?
            {
                break;
            }
            let cell = |column: usize| row.get(column).unwrap_or_default();
            let rank = rank.map(cell).filter(|cell| !cell.is_empty());
            predictions
                .add(cell(label), cell(predicted), rank)
                .map_err(|reason| ReportError::broken(file, line, reason))?;
        }
        Ok(Some(predictions))
    }

    fn add(&mut self, label: &str, predicted: &str, rank: Option<&str>) -> Result<(), String> {
        let pair = (self.place(label)?, self.place(predicted)?);
        if self.pairs.len() >= PAIRS && !self.pairs.contains_key(&pair) {
            return Err(format!("more than {PAIRS} pairs of classes"));
        }
        *self.pairs.entry(pair).or_default() += 1;
        self.samples += 1;
        if let Some(rank) = rank {
            let rank: u64 = rank
                .trim()
                .parse()
                .map_err(|_| format!("invalid rank {rank:?}"))?;
            self.ranked += 1;
            self.in_five += u64::from(rank <= 5);
        }
        Ok(())
    }

    fn place(&mut self, name: &str) -> Result<u32, String> {
        if let Some(place) = self.places.get(name) {
            return Ok(*place);
        }
        if self.names.len() == CLASSES {
            return Err(format!("more than {CLASSES} classes"));
        }
        let place = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        Ok(place)
    }
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
