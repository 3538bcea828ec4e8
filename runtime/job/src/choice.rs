//! Values of settings, with their text forms.

use crate::setting::names;
use frostline_wire::{Encoding, Split};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Implements the conversions for serde's `try_from` and `into` by parsing and formatting.
macro_rules! as_word {
    ($($type:ty),*) => {$(
        impl TryFrom<String> for $type {
            type Error = <$type as FromStr>::Err;

            fn try_from(word: String) -> Result<Self, Self::Error> {
                word.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    )*};
}
as_word!(
    EncodingChoice,
    Policy,
    Unfreezing,
    CacheLimit,
    crate::Channels,
    crate::Color,
    crate::Prices
);

/// Encoding of activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(try_from = "String", into = "String")]
#[strum(serialize_all = "lowercase")]
pub enum EncodingChoice {
    /// Uses u8 for the split `input` and f32 for other fixed splits. If the split is chosen automatically,
    /// the encoding is chosen for the link.
    #[default]
    Auto,
    /// Uses this encoding.
    #[strum(to_string = "{0}")]
    Fixed(Encoding),
}

impl EncodingChoice {
    /// Returns the encoding if it is fixed.
    pub fn fixed(self) -> Option<Encoding> {
        match self {
            Self::Auto => None,
            Self::Fixed(encoding) => Some(encoding),
        }
    }
}

impl FromStr for EncodingChoice {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            word => word
                .parse()
                .map(Self::Fixed)
                .map_err(|error| unknown(word, &error)),
        }
    }
}

#[cfg(not(feature = "flags"))]
fn unknown(_: &str, error: &frostline_wire::UnknownEncoding) -> String {
    error.to_string()
}

#[cfg(feature = "flags")]
fn unknown(word: &str, error: &frostline_wire::UnknownEncoding) -> String {
    match crate::flags::similar_encoding(word) {
        Some(meant) => format!("did you mean {meant}? {error}"),
        None => error.to_string(),
    }
}

/// Rule that chooses a split.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(try_from = "String", into = "String")]
#[strum(serialize_all = "kebab-case")]
pub enum Policy {
    /// Chooses the shortest predicted job. Among candidates with nearly the same time, the one with the
    /// smallest loss if a tier is slower than measured.
    #[default]
    Auto,
    /// Chooses the freeze cut, which moves all frozen layers to the hosts.
    Freeze,
    /// Chooses by the first rule of HAPI. This is the earliest cut where 2,500 images are smaller than the
    /// stored objects and than the bytes transferred per second. The fallback is the freeze cut. This rule
    /// requires the candidate `none`, because object sizes are unknown otherwise.
    HapiSize,
    /// Chooses the shortest job by the second rule of HAPI. Its formula assumes sequential extraction and
    /// transfer.
    HapiTime,
    /// Uses this split.
    #[strum(to_string = "{0}")]
    Fixed(Split),
}

/// Names of all rules, including the two splits that exist for all networks.
pub const RULES: [&str; 6] = ["auto", "freeze", "none", "input", "hapi-size", "hapi-time"];

/// A policy has an empty name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the split name is empty; use {} or a cut of the model", RULES.join(", "))]
pub struct ParsePolicyError;

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(name: &str) -> Result<Self, ParsePolicyError> {
        Ok(match name {
            "" => return Err(ParsePolicyError),
            "auto" => Self::Auto,
            "freeze" => Self::Freeze,
            "hapi-size" => Self::HapiSize,
            "hapi-time" => Self::HapiTime,
            split => Self::Fixed(Split::from(split)),
        })
    }
}

/// Freeze cuts of later epochs, by first epoch. Cuts move towards the input. Text form: `3=layer4,6=layer3`.
/// The cut `none` trains the whole network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Unfreezing(pub BTreeMap<u32, String>);

impl FromStr for Unfreezing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cuts = BTreeMap::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let wanted =
                || format!("invalid value '{part}': expected EPOCH=CUT (example: 3=layer4,6=layer3)");
            let (epoch, cut) = part
                .split_once('=')
                .filter(|(_, cut)| !cut.is_empty())
                .ok_or_else(wanted)?;
            let epoch: u32 = epoch.trim().parse().map_err(|_| wanted())?;
            if cuts.insert(epoch, cut.to_owned()).is_some() {
                return Err(format!("epoch {epoch} has two freeze cuts"));
            }
        }
        Ok(Self(cuts))
    }
}

impl fmt::Display for Unfreezing {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cuts = self.0.iter().map(|(epoch, cut)| format!("{epoch}={cut}"));
        to.write_str(&cuts.collect::<Vec<_>>().join(","))
    }
}

names! {
    "lowercase",
    /// Quantity that the rule `auto` minimizes.
    Objective {
        /// Job time.
        #[default]
        Time,
        /// Job cost at the configured prices.
        Cost,
    }

    /// Policy for selecting the written weights.
    Keep {
        /// The best epoch on the validation samples. Ties are resolved by the lower epoch.
        #[default]
        Best,
        /// The last epoch.
        Last,
    }

    /// Classifier to train.
    NewHead {
        /// The network's classifier with new weights for the classes of the data.
        #[default]
        Replace,
        /// A linear layer on the features at the end of the network.
        Linear,
        /// The network's classifier. Known classes keep their weights, and other classes get new weights.
        Keep,
    }

    /// Precision of the frozen layers in a job.
    PrefixPrecision {
        /// The precision of the exported network.
        #[default]
        F32,
        /// Quantized to 8 bits. Insufficient accuracy is an error.
        Int8,
        /// Quantized to 8 bits if this is faster and sufficiently accurate.
        Auto,
    }

    /// Precision of the frozen layers in the tuned model.
    ExportPrefix {
        /// The precision of the exported network.
        #[default]
        F32,
        /// The precision used by the job.
        Int8,
    }

    /// Policy for images without a line in the label table.
    Unlisted {
        /// Rejects the data and names an image.
        #[default]
        Fail,
        /// Excludes the image and reports it.
        Skip,
    }

    /// Policy for samples with decoding errors.
    OnBadSample {
        /// Ends the job and names the object.
        #[default]
        Fail,
        /// Excludes the sample and reports it.
        Skip,
    }
}

/// Disk limit of the feature cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(try_from = "String", into = "String")]
#[strum(serialize_all = "lowercase")]
pub enum CacheLimit {
    /// Disables the feature cache.
    Off,
    /// Maximum size in bytes.
    #[strum(to_string = "{0}")]
    Bytes(u64),
}

impl FromStr for CacheLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            text => frostline_wire::parse_size(text)
                .map(Self::Bytes)
                .map_err(|error| format!("{error}; use off to disable the cache")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_and_cuts_are_read_and_written_alike() {
        let cuts: Unfreezing = "6=none,3=layer4".parse().unwrap();
        assert_eq!(cuts.to_string(), "3=layer4,6=none");
        assert_eq!("".parse::<Unfreezing>().unwrap(), Unfreezing::default());
        for text in ["3", "x=r1", "3=", "3=r1,3=r2", ","] {
            assert!(text.parse::<Unfreezing>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!("off".parse(), Ok(CacheLimit::Off));
        for wrong in ["", "KiB", "4GB", "99999999999GiB"] {
            assert!(wrong.parse::<CacheLimit>().is_err(), "{wrong}");
        }
    }
}
