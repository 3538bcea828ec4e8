//! Values that flags take.

use clap::ValueEnum;
use frostline_wire::{Encoding, Layout, UnknownEncoding};

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum OptimizerName {
    /// Stochastic gradient descent with momentum
    Sgd,
    /// Adam with decoupled weight decay
    Adamw,
}

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

pub(super) fn encoding(word: &str) -> Result<EncodingChoice, UnknownEncoding> {
    match word {
        "auto" => Ok(EncodingChoice::Auto),
        word => word.parse().map(EncodingChoice::Fixed),
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
