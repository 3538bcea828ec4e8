//! Values that flags take.

use clap::ValueEnum;
use frostline_wire::{Compression, Encoding, Layout, UnknownEncoding, Values};

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LayoutName {
    /// Find out from the first files
    Auto,
    /// Every file is an image
    Objects,
    /// Images lie inside tar archives
    Shards,
}

impl From<LayoutName> for Layout {
    fn from(name: LayoutName) -> Self {
        match name {
            LayoutName::Auto => Self::Auto,
            LayoutName::Objects => Self::Objects,
            LayoutName::Shards => Self::Shards,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EncodingChoice {
    Auto,
    Fixed(Encoding),
}

impl EncodingChoice {
    pub(crate) fn fixed(self) -> Option<Encoding> {
        match self {
            Self::Auto => None,
            Self::Fixed(encoding) => Some(encoding),
        }
    }
}

pub(super) fn encoding(word: &str) -> Result<EncodingChoice, String> {
    if word == "auto" {
        return Ok(EncodingChoice::Auto);
    }
    let unknown = |error: UnknownEncoding| match similar(word, &encodings()) {
        Some(meant) => format!("did you mean {meant}? {error}"),
        None => error.to_string(),
    };
    word.parse().map(EncodingChoice::Fixed).map_err(unknown)
}

/// All that can be asked for.
fn encodings() -> Vec<String> {
    let of =
        |values| Compression::ALL.map(|compression| Encoding::plain(values).with(compression).to_string());
    let fixed = Values::ALL.into_iter().flat_map(of);
    fixed.chain(["auto".to_owned()]).collect()
}

/// What somebody who wrote `word` probably meant of `known`.
pub(super) fn similar(word: &str, known: &[String]) -> Option<String> {
    let known = known.iter().map(String::as_str);
    frostline_graph::similar(word, known)
        .first()
        .map(|&meant| meant.to_owned())
}

pub(super) fn above_zero(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && f64::is_finite(number) => Ok(number),
        _ => Err("must be a number above 0".to_owned()),
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum BadSample {
    /// End the job and name the object
    Fail,
    /// Leave the image out, report it, and never ask for it again
    Skip,
}

pub(super) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// A number of bytes, also with KiB, MiB or GiB.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let at = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let unit = match unit {
        "" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1_u64 << 30),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok();
    let bytes = number
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or_else(|| {
        format!("{text:?} is no size; write a number of bytes, also with KiB, MiB or GiB, such as 4GiB")
    })
}
