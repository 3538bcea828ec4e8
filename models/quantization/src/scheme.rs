use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Increments when the same scheme quantizes other values, or differently: cached results of other rules are stale.
pub const RULES: u32 = 2;

/// What is quantized. Convolutions read and write integers, linear layers read them. Sums, normalizations and activation functions stay in
/// f32, which transformers need; quantizing sums, concatenations and average pools as well made no network faster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scheme {
    /// The precision of weights.
    pub weights: WeightBits,
    /// Layers that stay in f32, by their output.
    pub in_f32: BTreeSet<String>,
}

impl Scheme {
    /// All layers, with weights of this precision.
    pub fn new(weights: WeightBits) -> Self {
        Self {
            weights,
            in_f32: BTreeSet::new(),
        }
    }
}

/// The precision of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WeightBits {
    /// -127 to 127.
    Eight,
    /// -63 to 63, for processors without VNNI: they add two products in 16 bits, which saturates with larger weights.
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
