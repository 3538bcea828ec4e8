//! Frozen layers in int8: which values become integers, over which ranges, and the network that computes so.
//!
//! The result is a network of its own in ordinary ONNX operators (`QuantizeLinear`, `DequantizeLinear`): whoever runs a part of it, on
//! whichever machine, computes the same integers. Weights have a scale for each output channel, activations one for the whole tensor,
//! from the least to the greatest value that calibration saw.
//!
//! * [`Calibration`]: a network that gives the ranges of its values
//! * [`Recipe`]: what is rounded; [`quantise`]: the network that rounds so
//! * [`cosine`]: how rows agree; [`observed`], [`layers_between`]: where they stop to
//!
//! Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (2018).

mod calibration;
mod cosine;
mod error;
mod layers;
mod observe;
mod ranges;
mod recipe;
mod rewrite;
mod rounding;

pub use calibration::Calibration;
pub use cosine::cosine;
pub use error::QuantisationError;
pub use observe::{layers_between, observed};
pub use ranges::{Range, Ranges};
pub use recipe::{RULES, Recipe, WeightBits};
pub use rewrite::{Quantised, quantise};

#[cfg(test)]
mod tests;
