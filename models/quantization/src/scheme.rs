use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Version of the quantization rules. It increments whenever the same scheme gives a different network, so
/// results cached under another version are stale.
pub const RULES: u32 = 2;

/// Layers to quantize and the precision of the weights. Convolutions read and write integers, linear layers
/// only read them. Sums, normalizations and activation functions stay in `f32`, which transformers need.
/// Quantizing sums, concatenations and average pools as well did not make any network faster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scheme {
    /// Precision of the weights.
    pub weights: WeightBits,
    /// Output names of layers to keep in `f32`.
    pub in_f32: BTreeSet<String>,
}

impl Scheme {
    /// Returns the scheme that quantizes all layers, with weights of this precision.
    pub fn new(weights: WeightBits) -> Self {
        Self {
            weights,
            in_f32: BTreeSet::new(),
        }
    }
}

/// Precision of quantized weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WeightBits {
    /// -127 to 127.
    Eight,
    /// -63 to 63. Processors without VNNI add two products in 16 bits, which saturates with larger weights.
    Seven,
}

impl WeightBits {
    pub(crate) fn greatest(self) -> f32 {
        match self {
            Self::Eight => 127.0,
            Self::Seven => 63.0,
        }
    }
}
