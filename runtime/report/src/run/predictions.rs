//! Totals of `predictions.csv`. The table has a row per validation image, and columns that depend on the
//! task.

use crate::ReportError;
use csv::{Reader, StringRecord};
use frostline_job::scores::{Counts, Errors, average_precision};
use frostline_job::{Task, spreadsheet};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Maximum number of classes, labels or numbers.
const OUTPUTS: usize = 100_000;
/// Maximum number of distinct pairs of true and predicted class.
const PAIRS: usize = 4_000_000;
/// Maximum number of probabilities held for ranking, 8 bytes each. If there are more, average precision is
/// not available.
const RANKED: usize = 4_000_000;

/// Totals of the predictions for the validation images.
#[derive(Debug)]
pub(crate) struct PredictionTotals {
    /// Task of the table's columns.
    pub(crate) task: Task,
    pub(crate) samples: u64,
    /// Scores in the order of the model's outputs. Classes unknown to the data set follow in alphabetical
    /// order.
    pub(crate) scores: Vec<Score>,
    /// Pairs of true and predicted class with the number of samples, including correct predictions. Classes
    /// are indices into `scores`. Empty for other tasks.
    pub(crate) pairs: Vec<(usize, usize, u64)>,
    /// Top-five accuracy over samples with a known rank.
    pub(crate) top_five: Option<f64>,
}

/// Scores of a class, a label or a target. Those that do not apply are empty.
#[derive(Debug, Default)]
pub(crate) struct Score {
    pub(crate) name: String,
    pub(crate) counts: Counts,
    /// `None` if no image has the label, or if there are too many probabilities.
    pub(crate) average_precision: Option<f64>,
    pub(crate) errors: Errors,
}

impl Score {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    /// Returns precision, recall and F1. They are the same as in scikit-learn, except that they are NaN
    /// instead of 0 if the denominator is 0.
    pub(crate) fn shares(&self) -> [f64; 3] {
        let Counts {
            support, predicted, ..
        } = self.counts;
        let shares = [
            (self.counts.precision(), predicted),
            (self.counts.recall(), support),
            (self.counts.f1(), support + predicted),
        ];
        shares.map(|(share, of)| if of == 0 { f64::NAN } else { share })
    }
}

impl PredictionTotals {
    /// Reads the predictions of a model with these classes.
    pub(crate) fn read(file: &Path, classes: &[String]) -> Result<Option<Self>, ReportError> {
        let opened = match File::open(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| ReportError::unreadable(file, error))?,
        };
        let mut rows = Reader::from_reader(opened);
        let header = rows.headers().map_err(|error| broken(file, 1, &error))?.clone();
        let places = header
            .iter()
            .zip(0..)
            .map(|(name, place)| (name.trim().to_owned(), place));
        let mut table = CsvTable {
            file,
            places: places.collect(),
            rows,
        };
        if !table.places.contains_key("label") && header.iter().any(|name| name.starts_with("label:")) {
            return outputs(&mut table, &header).map(Some);
        }
        Ok(Some(Pairs::read(&mut table)?.predictions(classes)))
    }

    /// Returns the number of samples with the correct class.
    pub(crate) fn right(&self) -> usize {
        self.scores.iter().map(|class| class.counts.correct).sum()
    }

    /// Returns the confused pairs, the most frequent first.
    pub(crate) fn confused(&self) -> Vec<(&Score, &Score, u64)> {
        let mut wrong: Vec<_> = self.pairs.iter().filter(|(is, taken, _)| is != taken).collect();
        wrong.sort_by_key(|(is, taken, count)| (Reverse(*count), *is, *taken));
        let named = wrong
            .into_iter()
            .filter_map(|(is, taken, count)| Some((self.scores.get(*is)?, self.scores.get(*taken)?, *count)));
        named.collect()
    }
}

/// A table with a header.
struct CsvTable<'a> {
    file: &'a Path,
    /// Columns by name.
    places: HashMap<String, usize>,
    rows: Reader<File>,
}

impl CsvTable<'_> {
    fn column(&self, name: &str) -> Result<usize, ReportError> {
        let place = self.places.get(name.trim()).copied();
        place.ok_or_else(|| ReportError::broken(self.file, 1, format!("missing column {name:?}")))
    }

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

/// Number of samples by true and predicted class.
#[derive(Default)]
struct Pairs {
    /// Class names in order of appearance. The name of a missing prediction is empty.
    names: Vec<String>,
    places: HashMap<String, u32>,
    pairs: HashMap<(u32, u32), u64>,
    /// Number of samples with a rank of the true class, and number of ranks up to 5.
    ranked: u64,
    in_five: u64,
}

impl Pairs {
    fn read(table: &mut CsvTable<'_>) -> Result<Self, ReportError> {
        let label = table.column("label")?;
        let predicted = table.column("predicted")?;
        let rank = table.column("rank").ok();
        let mut pairs = Self::default();
        table.each(|row| {
            let cell = |column: usize| row.get(column).unwrap_or_default();
            pairs.add(cell(label), cell(predicted))?;
            match rank.map(cell).filter(|cell| !cell.is_empty()) {
                Some(rank) => pairs.rank(rank),
                None => Ok(()),
            }
        })?;
        Ok(pairs)
    }

    fn add(&mut self, label: &str, predicted: &str) -> Result<(), String> {
        let pair = (self.place(label)?, self.place(predicted)?);
        if self.pairs.len() >= PAIRS && !self.pairs.contains_key(&pair) {
            return Err(format!("more than {PAIRS} pairs of true and predicted class"));
        }
        *self.pairs.entry(pair).or_default() += 1;
        Ok(())
    }

    fn rank(&mut self, cell: &str) -> Result<(), String> {
        let rank: u64 = cell
            .trim()
            .parse()
            .map_err(|_| format!("invalid rank {cell:?}"))?;
        self.ranked += 1;
        self.in_five += u64::from(rank <= 5);
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

    /// Counts the samples of each class. The `known` classes are the first.
    fn predictions(self, known: &[String]) -> PredictionTotals {
        let mut unknown: Vec<&String> = self.names.iter().filter(|name| !name.is_empty()).collect();
        unknown.sort();
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut scores = Vec::new();
        for name in known.iter().chain(unknown) {
            places.entry(name).or_insert_with(|| {
                scores.push(Score::new(name));
                scores.len() - 1
            });
        }
        let place = |of: u32| places.get(self.names.get(of as usize)?.as_str()).copied();
        let mut pairs = Vec::new();
        for ((label, predicted), samples) in &self.pairs {
            let label = place(*label);
            let predicted = place(*predicted);
            let count = *samples as usize;
            if let Some(class) = label.and_then(|label| scores.get_mut(label)) {
                class.counts.support += count;
                class.counts.correct += if label == predicted { count } else { 0 };
            }
            if let Some(class) = predicted.and_then(|predicted| scores.get_mut(predicted)) {
                class.counts.predicted += count;
            }
            let pair = label.zip(predicted);
            pairs.extend(pair.map(|(label, predicted)| (label, predicted, *samples)));
        }
        pairs.sort_unstable();
        PredictionTotals {
            task: Task::Classes,
            samples: self.pairs.values().sum(),
            scores,
            pairs,
            top_five: (self.ranked > 0).then(|| self.in_five as f64 / self.ranked as f64),
        }
    }
}

/// A label or a number with its columns.
struct ScoredOutput {
    score: Score,
    label: usize,
    predicted: usize,
    /// Column of the probability of a label. `None` for numbers.
    probability: Option<usize>,
    /// Probabilities and labels of the samples.
    ranked: Vec<(f32, bool)>,
}

impl ScoredOutput {
    fn add(&mut self, row: &StringRecord, is_ranked: bool) -> Result<(), String> {
        let wanted = number(row, self.label)?;
        let predicted = number(row, self.predicted)?;
        let Some(probability) = self.probability else {
            self.score.errors.add(f64::from(predicted), f64::from(wanted));
            return Ok(());
        };
        self.score.counts.add(predicted > 0.5, wanted > 0.5);
        if is_ranked {
            self.ranked.push((number(row, probability)?, wanted > 0.5));
        } else {
            self.ranked = Vec::new();
        }
        Ok(())
    }
}

/// Reads the columns `label:NAME`, `predicted:NAME` and, for labels, `probability:NAME`.
fn outputs(table: &mut CsvTable<'_>, header: &StringRecord) -> Result<PredictionTotals, ReportError> {
    let are_labels = header.iter().any(|column| column.starts_with("probability:"));
    let mut outputs = Vec::new();
    for name in header.iter().filter_map(|column| column.strip_prefix("label:")) {
        if outputs.len() == OUTPUTS {
            return Err(ReportError::broken(
                table.file,
                1,
                format!("more than {OUTPUTS} outputs"),
            ));
        }
        let probability = are_labels.then(|| table.column(&format!("probability:{name}")));
        outputs.push(ScoredOutput {
            score: Score::new(name),
            label: table.column(&format!("label:{name}"))?,
            predicted: table.column(&format!("predicted:{name}"))?,
            probability: probability.transpose()?,
            ranked: Vec::new(),
        });
    }
    let ranked = (RANKED / outputs.len().max(1)) as u64;
    let mut samples = 0;
    table.each(|row| {
        samples += 1;
        outputs
            .iter_mut()
            .try_for_each(|output| output.add(row, samples <= ranked))
    })?;
    let scores = outputs.into_iter().map(|output| Score {
        average_precision: average_precision(output.ranked),
        ..output.score
    });
    Ok(PredictionTotals {
        task: if are_labels { Task::Labels } else { Task::Numbers },
        samples,
        scores: scores.collect(),
        pairs: Vec::new(),
        top_five: None,
    })
}

/// Parses a number. Empty cells are NaN.
fn number(row: &StringRecord, column: usize) -> Result<f32, String> {
    let cell = row.get(column).unwrap_or_default().trim();
    if cell.is_empty() {
        return Ok(f32::NAN);
    }
    cell.parse().map_err(|_| format!("invalid number {cell:?}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> PredictionTotals {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("predictions.csv");
        std::fs::write(&file, text).unwrap();
        PredictionTotals::read(&file, &[]).unwrap().unwrap()
    }

    #[test]
    fn each_label_is_counted_and_ranked() {
        let read = read(
            "key,label:warm,predicted:warm,probability:warm,label:cold,predicted:cold,probability:cold\n\
             a,1,1,0.9,0,0,0.1\nb,0,1,0.8,0,0,0.2\nc,1,0,0.3,0,1,0.7\n",
        );
        assert_eq!(read.task, Task::Labels);
        let [warm, cold] = read.scores.as_slice() else {
            panic!("{read:?}")
        };
        assert_eq!(
            (read.samples, warm.name.as_str(), warm.counts.support),
            (3, "warm", 2)
        );
        assert_eq!(
            [warm.counts.precision(), warm.counts.recall(), warm.counts.f1()],
            [0.5; 3]
        );
        // The ranking is positive, negative, positive.
        assert!((warm.average_precision.unwrap() - (1.0 + 2.0 / 3.0) / 2.0).abs() < 1e-12);
        assert_eq!((cold.average_precision, cold.counts.predicted), (None, 1));
    }

    /// The mean of the targets is 4, and the errors are 1 and -3.
    #[test]
    fn each_number_is_measured() {
        let read = read("key,label:age,predicted:age\na,2,3\nb,6,3\n");
        assert_eq!(read.task, Task::Numbers);
        let errors = &read.scores[0].errors;
        assert_eq!((read.samples, read.scores[0].name.as_str()), (2, "age"));
        assert_eq!(
            [errors.mean(), errors.mae(), errors.r2()],
            [4.0, 2.0, 1.0 - 10.0 / 8.0]
        );
        assert!((errors.rmse() - 5.0_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn escaped_names_are_the_classes_of_the_data_and_a_missing_prediction_is_none() {
        let names = ["-dash", "+plus", "=sum", "@at", "'=quoted", "plain"];
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("predictions.csv");
        let cells = names.map(frostline_job::spreadsheet::escape);
        let rows: String = cells.iter().map(|cell| format!("k,{cell},{cell}\n")).collect();
        std::fs::write(&file, format!("key,label,predicted\n{rows}k,plain,\n")).unwrap();
        let known = names.map(str::to_owned);
        let found = PredictionTotals::read(&file, &known).unwrap().unwrap();
        let rows: Vec<(&str, usize, usize)> = found
            .scores
            .iter()
            .map(|class| (class.name.as_str(), class.counts.support, class.counts.correct))
            .collect();
        let mut expected = names.map(|name| (name, 1, 1));
        expected[5].1 = 2;
        assert_eq!(rows, expected);
        assert_eq!((found.samples, found.right()), (7, 6));
    }
}
