use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Counts up when other values are rounded for the same recipe, or in another way: what was found out by other rules says nothing.
pub const RULES: u32 = 2;

/// What becomes integers: convolutions read and write them, linear layers read them. Sums, normalisations and activation functions in
/// between stay in f32, which transformers need; rounding sums, concatenations and average pools as well makes no network faster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recipe {
    /// How finely weights are rounded.
    pub weights: WeightBits,
    /// Layers that stay in f32, by the value they make.
    pub in_f32: BTreeSet<String>,
}

impl Recipe {
    /// All layers, with weights of so many bits.
    pub fn new(weights: WeightBits) -> Self {
        Self {
            weights,
            in_f32: BTreeSet::new(),
        }
    }
}

/// How finely weights are rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WeightBits {
    /// -127 to 127.
    Eight,
    /// -63 to 63: processors without VNNI add products of bytes in 16 bits, which two larger ones overflow.
    Seven,
}

impl WeightBits {
    /// The greatest integer.
    pub(crate) fn greatest(self) -> f32 {
        match self {
            Self::Eight => 127.0,
            Self::Seven => 63.0,
        }
    }
}
