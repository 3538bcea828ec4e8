//! Frozen layers in less precision: post-training quantization to int8, and f16 for GPUs.
//!
//! The int8 result is a complete network of ordinary ONNX operators (`QuantizeLinear`, `DequantizeLinear`), so all
//! engines compute the same integers, also for parts of the network. Weights have a scale per output channel.
//! Activations have a scale per tensor, from the smallest to the largest value observed during calibration.
//!
//! * [`Calibration`] measures the ranges of values.
//! * [`Scheme`] selects the layers to quantize and the precision of the weights. [`quantize`] returns the
//!   quantized network.
//! * [`to_f16`] converts a network to f16, which needs no calibration. [`for_precision`] does so if the precision
//!   of a stage is f16.
//! * [`cosine()`] compares rows. [`with_cuts_as_outputs`] and [`layers_between`] locate the error.
//!
//! Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
//! Inference" (2018).

mod arithmetic;
mod calibration;
mod cosine;
mod error;
mod error_location;
mod half;
mod layers;
mod ranges;
mod rewrite;
mod scheme;

pub use calibration::Calibration;
pub use cosine::cosine;
pub use error::QuantizationError;
pub use error_location::{layers_between, with_cuts_as_outputs};
pub use half::{for_precision, to_f16};
pub use ranges::{Range, Ranges};
pub use rewrite::{Quantized, quantize};
pub use scheme::{RULES, Scheme, WeightBits};

#[cfg(test)]
mod tests;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
