//! Values that settings take, in words.

use frostline_wire::{Encoding, Split};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Written and read as the word that a flag takes.
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

/// How activations travel: as a job says, or as suits the link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EncodingChoice {
    /// u8 for the split `input`, f32 for a split that is given, and what suits the link where the split is chosen too.
    #[default]
    Auto,
    /// This one.
    Fixed(Encoding),
}

impl EncodingChoice {
    /// The encoding, where one is named.
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
    match crate::flags::meant_encoding(word) {
        Some(meant) => format!("did you mean {meant}? {error}"),
        None => error.to_string(),
    }
}

impl fmt::Display for EncodingChoice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => to.write_str("auto"),
            Self::Fixed(encoding) => encoding.fmt(to),
        }
    }
}

/// A rule that chooses a split.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Policy {
    /// The shortest predicted job; of those too near it to tell which is shorter, the one that loses least should a tier turn out slower
    /// than it was measured.
    #[default]
    Auto,
    /// The freeze cut: as many layers beside the data as may be.
    Freeze,
    /// HAPI's first rule: the earliest cut at which 2,500 images are smaller than the stored objects and than what the link moves in a
    /// second, else the freeze cut. Without `none` among the candidates nothing is known of the objects, and it chooses nothing.
    HapiSize,
    /// HAPI's later rule: the shortest job by its own formula, in which extraction and transfer follow each other.
    HapiTime,
    /// This split.
    Fixed(Split),
}

/// The rules by name, the two splits that every network has among them.
pub const RULES: [&str; 6] = ["auto", "freeze", "none", "input", "hapi-size", "hapi-time"];

/// A policy no one knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a split has a name: write {}, or a cut of the model", RULES.join(", "))]
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

impl fmt::Display for Policy {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => to.write_str("auto"),
            Self::Freeze => to.write_str("freeze"),
            Self::HapiSize => to.write_str("hapi-size"),
            Self::HapiTime => to.write_str("hapi-time"),
            Self::Fixed(split) => write!(to, "{split}"),
        }
    }
}

/// What the rule `auto` minimizes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Objective {
    /// The job's time.
    #[default]
    Time,
    /// What the job costs at given prices.
    Cost,
}

/// The freeze cuts of later epochs, by the first epoch of each; each lies before the one it follows. `3=layer4,6=layer3` in words; `none` freezes
/// nothing from there on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Unfreezing(pub BTreeMap<u32, String>);

impl FromStr for Unfreezing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cuts = BTreeMap::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let wanted = || format!("'{part}' is not EPOCH=CUT, as in 3=layer4,6=layer3");
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

/// Which epoch's weights are written.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Keep {
    /// The best on the validation samples; of several alike the first.
    #[default]
    Best,
    /// The last.
    Last,
}

/// Which classifier is trained.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum NewHead {
    /// The network's own, with fresh weights for the data's classes.
    #[default]
    Replace,
    /// A linear layer behind the features that the network ends in.
    Linear,
    /// The network's own, with its weights for the classes that it knows by name and fresh ones for others.
    Keep,
}

/// The precision of the frozen layers in a job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum PrefixPrecision {
    /// As the network was exported.
    #[default]
    F32,
    /// Quantized to eight bits; an error if that is too imprecise.
    Int8,
    /// Quantized if that is faster and precise enough.
    Auto,
}

/// The precision of the frozen layers in the written model.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ExportPrefix {
    /// As the network was exported.
    #[default]
    F32,
    /// As the job computed them.
    Int8,
}

/// What to do about an image that a table of labels has no line for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Unlisted {
    /// Refuse the data and name the image.
    #[default]
    Fail,
    /// Leave it out and report it.
    Skip,
}

/// What to do about a sample that cannot be decoded.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::EnumString, strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum OnBadSample {
    /// End the job and name the object.
    #[default]
    Fail,
    /// Leave it out from now on and report it.
    Skip,
}

/// Disk that kept rows may take, or that none are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CacheLimit {
    /// No rows are kept.
    Off,
    /// At most so many bytes.
    Bytes(u64),
}

impl FromStr for CacheLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            text => frostline_wire::parse_size(text)
                .map(Self::Bytes)
                .map_err(|error| format!("{error}; or off")),
        }
    }
}

impl fmt::Display for CacheLimit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => to.write_str("off"),
            Self::Bytes(bytes) => bytes.fmt(to),
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
