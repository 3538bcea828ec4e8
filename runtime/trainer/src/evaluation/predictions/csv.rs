//! Predictions as a table.

use super::{ClassPrediction, PredictionRows, Predictions, SampleOutputs, is_yes, sigmoid};
use crate::{TrainerError, whole_file};
use csv::WriterBuilder;
use frostline_job::spreadsheet;
use std::io::{self, Write};
use std::path::Path;

impl Predictions {
    /// Atomically writes a CSV file with one line per sample. Keeps the order of the samples. `names`
    /// contains the output names.
    ///
    /// Columns for classes are `key,label,predicted,probability,rank`. For each label the file contains
    /// `label:NAME`, `predicted:NAME` (0 or 1) and `probability:NAME`, for each number `label:NAME` and
    /// `predicted:NAME`. NaN is written as an empty field.
    pub(crate) fn write(&self, names: &[String], path: &Path) -> Result<(), TrainerError> {
        whole_file::write(path, |file| self.write_to(names, file))
            .map_err(TrainerError::unwritten("predictions", path))
    }

    pub(super) fn write_to(&self, names: &[String], to: &mut impl Write) -> io::Result<()> {
        let mut table = WriterBuilder::new().from_writer(to);
        match &self.rows {
            PredictionRows::Classes(choices) => {
                table.write_record(["key", "label", "predicted", "probability", "rank"])?;
                for (key, choice) in self.keys().zip(choices) {
                    table.write_record(of_class(&key, choice, names))?;
                }
            }
            PredictionRows::Labels(values) => {
                table.write_record(header(names, &["label", "predicted", "probability"]))?;
                for (key, sample) in self.keys().zip(values.rows()) {
                    table.write_record(row(&key, sample, |output, is| {
                        let probability = number(sigmoid(output));
                        [flag(is > 0.5), flag(is_yes(output)), probability]
                    }))?;
                }
            }
            PredictionRows::Numbers(values) => {
                table.write_record(header(names, &["label", "predicted"]))?;
                for (key, sample) in self.keys().zip(values.rows()) {
                    table.write_record(row(&key, sample, |output, is| [number(is), number(output)]))?;
                }
            }
        }
        table.flush()
    }
}

fn of_class(key: &str, choice: &ClassPrediction, names: &[String]) -> [String; 5] {
    let named = [Some(choice.label as usize), choice.predicted()];
    let [label, predicted] = named.map(|place| names.get(place?).map(|name| text(name)));
    [
        text(key),
        label.unwrap_or_default(),
        predicted.unwrap_or_default(),
        number(choice.probability),
        choice.rank.to_string(),
    ]
}

fn header(names: &[String], columns: &[&str]) -> Vec<String> {
    ["key".to_owned()]
        .into_iter()
        .chain(names.iter().flat_map(|name| {
            columns
                .iter()
                .map(|column| format!("{column}:{name}"))
                .collect::<Vec<_>>()
        }))
        .collect()
}

fn row<const COLUMNS: usize>(
    key: &str,
    sample: SampleOutputs<'_>,
    cells: impl Fn(f32, f32) -> [String; COLUMNS],
) -> Vec<String> {
    let cells = sample.pairs().flat_map(|(output, wanted)| cells(output, wanted));
    [text(key)].into_iter().chain(cells).collect()
}

/// Escapes a key or a name for spreadsheets.
fn text(name: &str) -> String {
    spreadsheet::escape(name).into_owned()
}

fn flag(yes: bool) -> String {
    u8::from(yes).to_string()
}

fn number(value: f32) -> String {
    if value.is_nan() {
        String::new()
    } else {
        value.to_string()
    }
}
