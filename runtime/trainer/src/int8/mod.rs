//! Quantizes frozen layers to int8: calibrates on images of the data set, compares with f32, and decides if
//! int8 is used. `docs/int8.md` describes the method.

mod compare;
mod decide;
mod quantize;
mod record;

pub(crate) use decide::{IMAGES, Int8Candidate, QuantizedModel, decide_for};
pub use quantize::{QuantizationJob, quantize};
pub(crate) use record::Int8Record;

/// Minimum cosine similarity to f32, unless imprecise layers are allowed. Heads on SqueezeNet activations at
/// 0.99 match the accuracy of f32. A transformer broken by naive quantization had 0.97.
pub(crate) const LEAST_SIMILARITY: f64 = 0.99;

/// Minimum speedup for `auto`. Measurements vary by about this factor.
const MIN_SPEEDUP: f64 = 1.1;
