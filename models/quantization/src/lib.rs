//! Post-training quantization of frozen layers to int8.
//!
//! The result is a network of its own in ordinary ONNX operators (`QuantizeLinear`, `DequantizeLinear`): every engine that runs a part of
//! it computes the same integers. Weights have a scale per output channel, activations one per tensor, from the least to the greatest value
//! seen in calibration.
//!
//! * [`Calibration`]: a network whose outputs are the ranges of its values
//! * [`Scheme`]: what is quantized; [`quantize`]: the quantized network
//! * [`cosine`]: similarity of rows; [`with_cuts_as_outputs`], [`layers_between`]: where the error arises
//!
//! Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference" (2018).

mod arithmetic;
mod calibration;
mod cosine;
mod error;
mod error_location;
mod layers;
mod ranges;
mod rewrite;
mod scheme;

pub use calibration::Calibration;
pub use cosine::cosine;
pub use error::QuantizationError;
pub use error_location::{layers_between, with_cuts_as_outputs};
pub use ranges::{Range, Ranges};
pub use rewrite::{Quantized, quantize};
pub use scheme::{RULES, Scheme, WeightBits};

#[cfg(test)]
mod tests;
