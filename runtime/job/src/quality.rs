//! Quality metrics by kind of task. Names and formulas match scikit-learn.

use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

/// Quality metrics over a set of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quality {
    /// Metrics for a single class per sample.
    Classes {
        /// Fraction of correctly classified samples, 0 to 1.
        accuracy: f64,
    },
    /// Metrics for multiple labels per sample. A label is predicted if the output is above 0, a probability
    /// above 0.5.
    Labels {
        /// Micro F1 (0 to 1).
        f1_micro: f64,
        /// Mean of the F1 of all labels. Absent labels have F1 0.
        f1_macro: f64,
        /// Mean average precision over labels with positive samples.
        mean_average_precision: f64,
    },
    /// Metrics for numbers, averaged over the targets.
    Numbers {
        /// Mean absolute error.
        mae: f64,
        /// Root of the mean squared error.
        rmse: f64,
        /// Coefficient of determination, up to 1. Negative values are worse than predicting the mean.
        r2: f64,
    },
}

impl Quality {
    /// Returns the name and value of the main metric.
    pub fn main_metric(&self) -> (&'static str, f64) {
        match *self {
            Self::Classes { accuracy } => ("accuracy", accuracy),
            Self::Labels {
                mean_average_precision,
                ..
            } => ("mean_average_precision", mean_average_precision),
            Self::Numbers { rmse, .. } => ("rmse", rmse),
        }
    }

    /// Returns the main metric, negated for errors so that higher values are better. Scores are only
    /// comparable within a kind of task.
    pub fn score(&self) -> f64 {
        let (_, figure) = self.main_metric();
        match self {
            Self::Classes { .. } | Self::Labels { .. } => figure,
            Self::Numbers { .. } => -figure,
        }
    }

    /// Reads metrics by name. Returns `None` if the metrics are incomplete for every kind of task.
    fn from_figures(figure: impl Fn(&str) -> Option<f64>) -> Option<Self> {
        let classes = figure("accuracy").map(|accuracy| Self::Classes { accuracy });
        classes
            .or_else(|| {
                Some(Self::Labels {
                    f1_micro: figure("f1_micro")?,
                    f1_macro: figure("f1_macro")?,
                    mean_average_precision: figure("mean_average_precision")?,
                })
            })
            .or_else(|| {
                Some(Self::Numbers {
                    mae: figure("mae")?,
                    rmse: figure("rmse")?,
                    r2: figure("r2")?,
                })
            })
    }

    /// Compares two results of the same kind of task. The better result is greater, and NaN is less than all
    /// numbers. Equal scores for labels, and those that are NaN, are compared by macro F1.
    pub fn compare(&self, other: &Self) -> Ordering {
        let rank = |quality: &Self| {
            let next = match *quality {
                Self::Labels { f1_macro, .. } => f1_macro,
                Self::Classes { .. } | Self::Numbers { .. } => 0.0,
            };
            [quality.score(), next]
        };
        let compared = rank(self).into_iter().zip(rank(other));
        let compared = compared.map(|(own, other)| match own.partial_cmp(&other) {
            Some(order) => order,
            None => other.is_nan().cmp(&own.is_nan()),
        });
        compared.fold(Ordering::Equal, Ordering::then)
    }

    /// Returns all metrics by name.
    pub fn figures(&self) -> Vec<(&'static str, f64)> {
        match *self {
            Self::Classes { accuracy } => vec![("accuracy", accuracy)],
            Self::Labels {
                f1_micro,
                f1_macro,
                mean_average_precision,
            } => vec![
                ("f1_micro", f1_micro),
                ("f1_macro", f1_macro),
                ("mean_average_precision", mean_average_precision),
            ],
            Self::Numbers { mae, rmse, r2 } => vec![("mae", mae), ("rmse", rmse), ("r2", r2)],
        }
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Classes { accuracy } => write!(to, "accuracy {:.1} %", accuracy * 100.0),
            Self::Labels {
                f1_micro,
                f1_macro,
                mean_average_precision,
            } => write!(
                to,
                "F1 {f1_micro:.3} micro and {f1_macro:.3} macro, mean average precision {mean_average_precision:.3}"
            ),
            Self::Numbers { mae, rmse, r2 } => write!(to, "MAE {mae:.4}, RMSE {rmse:.4}, R2 {r2:.4}"),
        }
    }
}

/// Defines a module for `#[serde(with)]` that adds a prefix to the names of metrics.
macro_rules! measured_with {
    ($part:ident, $prefix:literal) => {
        pub(crate) mod $part {
            use super::Quality;
            use serde::{Deserializer, Serializer};

            pub(crate) fn serialize<S: Serializer>(quality: &Quality, to: S) -> Result<S::Ok, S::Error> {
                super::named($prefix, quality, to)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Quality, D::Error> {
                super::read($prefix, from)
            }
        }
    };
}

measured_with!(validation, "validation_");
measured_with!(test, "test_");

fn read<'de, D: Deserializer<'de>>(prefix: &str, from: D) -> Result<Quality, D::Error> {
    let fields = HashMap::<String, Value>::deserialize(from)?;
    // NaN is written as null, because JSON cannot represent it.
    let figure = |name: &str| {
        let value = fields.get(&format!("{prefix}{name}"))?;
        Some(value.as_f64().unwrap_or(f64::NAN))
    };
    Quality::from_figures(figure).ok_or_else(|| {
        D::Error::custom(format!(
            "missing field `{prefix}accuracy`, and no complete metrics for labels or numbers"
        ))
    })
}

impl Serialize for Quality {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        named("", self, to)
    }
}

fn named<S: Serializer>(prefix: &str, quality: &Quality, to: S) -> Result<S::Ok, S::Error> {
    let figures = quality.figures();
    let mut map = to.serialize_map(Some(figures.len()))?;
    for (name, figure) in figures {
        map.serialize_entry(&format!("{prefix}{name}"), &figure)?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_ranks_below_all_numbers() {
        let of = |accuracy| Quality::Classes { accuracy };
        let none = of(f64::NAN);
        for number in [f64::NEG_INFINITY, -3.0, 0.0, 1.0] {
            assert_eq!(of(number).compare(&none), Ordering::Greater);
            assert_eq!(none.compare(&of(number)), Ordering::Less);
        }
        assert_eq!(none.compare(&none), Ordering::Equal);
        assert_eq!(of(0.5).compare(&of(0.5)), Ordering::Equal);
        assert_eq!(of(0.6).compare(&of(0.5)), Ordering::Greater);
    }

    #[test]
    fn labels_without_a_mean_average_precision_are_compared_by_macro_f1() {
        let of = |f1_macro, mean_average_precision| Quality::Labels {
            f1_micro: 0.0,
            f1_macro,
            mean_average_precision,
        };
        let undefined = f64::NAN;
        assert_eq!(of(0.6, undefined).compare(&of(0.5, undefined)), Ordering::Greater);
        assert_eq!(
            of(0.6, undefined).compare(&of(undefined, undefined)),
            Ordering::Greater
        );
        assert_eq!(of(0.6, undefined).compare(&of(0.5, 0.1)), Ordering::Less);
        assert_eq!(of(0.6, 0.1).compare(&of(0.5, 0.1)), Ordering::Greater);
    }

    #[test]
    fn figures_serialize_by_their_names() {
        let quality = Quality::Numbers {
            mae: 1.0,
            rmse: 2.0,
            r2: 0.5,
        };
        assert_eq!(
            serde_json::to_value(quality).unwrap(),
            serde_json::json!({"mae": 1.0, "rmse": 2.0, "r2": 0.5})
        );
        assert!(
            quality.score()
                < Quality::Numbers {
                    mae: 9.0,
                    rmse: 1.0,
                    r2: 0.0
                }
                .score()
        );
    }
}
