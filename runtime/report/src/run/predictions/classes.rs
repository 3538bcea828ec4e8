use super::{OUTPUTS, Rows, column, missing};
use crate::ReportError;
use csv::StringRecord;
use frostline_job::spreadsheet;
use std::collections::HashMap;

/// Maximum number of distinct pairs of true and predicted class.
const PAIRS: usize = 4_000_000;

/// Predictions of one class per image.
#[derive(Debug, Default)]
pub(crate) struct ClassPredictions {
    /// Class names in order of appearance. The name of a missing prediction is empty.
    pub(crate) names: Vec<String>,
    places: HashMap<String, u32>,
    /// Number of samples by true and predicted class.
    pub(crate) pairs: HashMap<(u32, u32), u64>,
    pub(crate) samples: u64,
    /// Number of samples with a rank of the true class, and number of ranks up to 5.
    pub(crate) ranked: u64,
    pub(crate) in_five: u64,
}

/// Columns of the table.
pub(super) struct Columns {
    label: usize,
    predicted: usize,
    rank: Option<usize>,
}

impl Columns {
    pub(super) fn find(header: &StringRecord) -> Result<Self, String> {
        let needed = |name: &str| column(header, name).ok_or_else(|| missing(name));
        Ok(Self {
            label: needed("label")?,
            predicted: needed("predicted")?,
            rank: column(header, "rank"),
        })
    }
}

impl ClassPredictions {
    pub(super) fn read(columns: &Columns, rows: &mut Rows<'_>) -> Result<Self, ReportError> {
        let mut predictions = Self::default();
        rows.each(|row| {
            let cell = |column: usize| row.get(column).unwrap_or_default();
            let rank = columns.rank.map(cell).filter(|cell| !cell.is_empty());
            predictions.add(cell(columns.label), cell(columns.predicted), rank)
        })?;
        Ok(predictions)
    }

    fn add(&mut self, label: &str, predicted: &str, rank: Option<&str>) -> Result<(), String> {
        let pair = (self.place(label)?, self.place(predicted)?);
        if self.pairs.len() >= PAIRS && !self.pairs.contains_key(&pair) {
            return Err(format!("more than {PAIRS} pairs of true and predicted class"));
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

    fn place(&mut self, cell: &str) -> Result<u32, String> {
        let name = spreadsheet::unescape(cell);
        if let Some(place) = self.places.get(name) {
            return Ok(*place);
        }
        if self.names.len() == OUTPUTS {
            return Err(format!("more than {OUTPUTS} classes"));
        }
        let place = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        Ok(place)
    }
}
