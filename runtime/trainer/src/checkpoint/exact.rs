//! Serializes floats as integer bit patterns, so they survive a JSON round trip exactly.

use crate::Quality;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    number.to_bits().serialize(to)
}

pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<f64, D::Error> {
    Ok(f64::from_bits(u64::deserialize(from)?))
}

/// Bit patterns of the figures in a [`Quality`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Figures {
    Classes(u64),
    Labels([u64; 3]),
    Numbers([u64; 3]),
}

pub(super) mod quality {
    use super::{Deserialize, Deserializer, Figures, Quality, Serialize, Serializer};

    pub(in crate::checkpoint) fn serialize<S: Serializer>(
        quality: &Quality,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let figures = match *quality {
            Quality::Classes { accuracy } => Figures::Classes(accuracy.to_bits()),
            Quality::Labels {
                f1_micro,
                f1_macro,
                mean_average_precision,
            } => Figures::Labels([f1_micro, f1_macro, mean_average_precision].map(f64::to_bits)),
            Quality::Numbers { mae, rmse, r2 } => Figures::Numbers([mae, rmse, r2].map(f64::to_bits)),
        };
        figures.serialize(to)
    }

    pub(in crate::checkpoint) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Quality, D::Error> {
        Ok(match Figures::deserialize(from)? {
            Figures::Classes(accuracy) => Quality::Classes {
                accuracy: f64::from_bits(accuracy),
            },
            Figures::Labels(figures) => {
                let [f1_micro, f1_macro, mean_average_precision] = figures.map(f64::from_bits);
                Quality::Labels {
                    f1_micro,
                    f1_macro,
                    mean_average_precision,
                }
            }
            Figures::Numbers(figures) => {
                let [mae, rmse, r2] = figures.map(f64::from_bits);
                Quality::Numbers { mae, rmse, r2 }
            }
        })
    }
}
