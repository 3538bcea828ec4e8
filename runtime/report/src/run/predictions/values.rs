//! Scores of labels and numbers, calculated for each output separately.

use super::{OUTPUTS, Rows, missing};
use crate::ReportError;
use csv::StringRecord;
use frostline_job::scores::{Counts, Errors, average_precision};
use std::collections::HashMap;

/// Maximum number of probabilities held for ranking, 8 bytes each. If there are more, average precision is
/// not available.
const RANKED: usize = 4_000_000;

/// Scores of labels, ordered by model output.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    pub(crate) samples: u64,
    pub(crate) scores: Vec<LabelScore>,
}

#[derive(Debug)]
pub(crate) struct LabelScore {
    pub(crate) name: String,
    pub(crate) counts: Counts,
    /// `None` if no image has the label, or if there are too many probabilities.
    pub(crate) average_precision: Option<f64>,
}

/// Scores of numbers, ordered by model output.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    pub(crate) samples: u64,
    pub(crate) scores: Vec<TargetScore>,
}

#[derive(Debug)]
pub(crate) struct TargetScore {
    pub(crate) name: String,
    pub(crate) errors: Errors,
}

/// Columns of each output.
pub(super) enum Columns {
    Labels(Vec<LabelColumns>),
    Numbers(Vec<TargetColumns>),
}

pub(super) struct LabelColumns {
    name: String,
    label: usize,
    predicted: usize,
    probability: usize,
}

pub(super) struct TargetColumns {
    name: String,
    label: usize,
    predicted: usize,
}

impl Columns {
    /// Finds the columns `label:NAME`, `predicted:NAME` and, for labels, `probability:NAME`.
    pub(super) fn find(header: &StringRecord) -> Result<Self, String> {
        let places: HashMap<&str, usize> = header.iter().zip(0..).collect();
        let needed = |kind: &str, name: &str| {
            let column = format!("{kind}:{name}");
            places
                .get(column.as_str())
                .copied()
                .ok_or_else(|| missing(&column))
        };
        let outputs = || {
            header
                .iter()
                .zip(0..)
                .filter_map(|(column, place)| Some((column.strip_prefix("label:")?, place)))
        };
        if outputs().count() > OUTPUTS {
            return Err(format!("more than {OUTPUTS} outputs"));
        }
        if header.iter().any(|column| column.starts_with("probability:")) {
            let columns = outputs().map(|(name, label)| {
                Ok(LabelColumns {
                    name: name.to_owned(),
                    label,
                    predicted: needed("predicted", name)?,
                    probability: needed("probability", name)?,
                })
            });
            return Ok(Self::Labels(columns.collect::<Result<_, String>>()?));
        }
        let columns = outputs().map(|(name, label)| {
            Ok(TargetColumns {
                name: name.to_owned(),
                label,
                predicted: needed("predicted", name)?,
            })
        });
        Ok(Self::Numbers(columns.collect::<Result<_, String>>()?))
    }
}

impl Labels {
    pub(super) fn read(columns: Vec<LabelColumns>, rows: &mut Rows<'_>) -> Result<Self, ReportError> {
        let mut counts = vec![Counts::default(); columns.len()];
        let mut ranked: Vec<Vec<(f32, bool)>> = vec![Vec::new(); columns.len()];
        let mut samples = 0_u64;
        rows.each(|row| {
            samples += 1;
            let held = samples.saturating_mul(columns.len() as u64);
            for ((columns, counts), ranked) in columns.iter().zip(&mut counts).zip(&mut ranked) {
                let is = number(row, columns.label)? > 0.5;
                counts.add(number(row, columns.predicted)? > 0.5, is);
                if held <= RANKED as u64 {
                    ranked.push((number(row, columns.probability)?, is));
                } else {
                    *ranked = Vec::new();
                }
            }
            Ok(())
        })?;
        let scored = columns.into_iter().zip(counts).zip(ranked);
        let scores = scored.map(|((columns, counts), ranked)| LabelScore {
            name: columns.name,
            counts,
            average_precision: average_precision(ranked),
        });
        Ok(Self {
            samples,
            scores: scores.collect(),
        })
    }
}

impl Targets {
    pub(super) fn read(columns: Vec<TargetColumns>, rows: &mut Rows<'_>) -> Result<Self, ReportError> {
        let mut errors = vec![Errors::default(); columns.len()];
        let mut samples = 0;
        rows.each(|row| {
            samples += 1;
            for (columns, errors) in columns.iter().zip(&mut errors) {
                let output = number(row, columns.predicted)?;
                let wanted = number(row, columns.label)?;
                errors.add(f64::from(output), f64::from(wanted));
            }
            Ok(())
        })?;
        let scores = columns
            .into_iter()
            .zip(errors)
            .map(|(columns, errors)| TargetScore {
                name: columns.name,
                errors,
            });
        Ok(Self {
            samples,
            scores: scores.collect(),
        })
    }
}

/// Parses a number. Empty cells are NaN.
fn number(row: &StringRecord, column: usize) -> Result<f32, String> {
    let cell = row.get(column).unwrap_or_default().trim();
    if cell.is_empty() {
        return Ok(f32::NAN);
    }
    cell.parse().map_err(|_| format!("invalid number {cell:?}"))
}

#[cfg(test)]
mod tests {
    use crate::run::Predictions;

    fn read(text: &str) -> Predictions {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("predictions.csv");
        std::fs::write(&file, text).unwrap();
        Predictions::read(&file).unwrap().unwrap()
    }

    #[test]
    fn each_label_is_counted_and_ranked() {
        let read = read(
            "key,label:warm,predicted:warm,probability:warm,label:cold,predicted:cold,probability:cold\n\
             a,1,1,0.9,0,0,0.1\nb,0,1,0.8,0,0,0.2\nc,1,0,0.3,0,1,0.7\n",
        );
        let Predictions::Labels(labels) = read else {
            panic!("{read:?}")
        };
        let [warm, cold] = labels.scores.as_slice() else {
            panic!("{labels:?}")
        };
        assert_eq!(
            (labels.samples, warm.name.as_str(), warm.counts.support),
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
        let Predictions::Numbers(targets) = read else {
            panic!("{read:?}")
        };
        let errors = &targets.scores[0].errors;
        assert_eq!((targets.samples, targets.scores[0].name.as_str()), (2, "age"));
        assert_eq!(
            [errors.mean(), errors.mae(), errors.r2()],
            [4.0, 2.0, 1.0 - 10.0 / 8.0]
        );
        assert!((errors.rmse() - 5.0_f64.sqrt()).abs() < 1e-12);
    }
}
