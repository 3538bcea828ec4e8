//! Frozen layers in int8: calibrated on images of the data, compared with f32, and used or not. `docs/int8.md` explains it.

mod compare;
mod decide;
mod quantize;
mod record;

pub(crate) use decide::{Candidate, IMAGES, QuantizedModel, decide_for};
pub use quantize::{QuantizationJob, quantize};
pub(crate) use record::Int8Record;

/// The least cosine similarity to f32 that needs no permission: heads on SqueezeNet's activations at 0.99 are as accurate as on f32, and a
/// transformer that naive quantization broke had 0.97.
pub(crate) const LEAST_SIMILARITY: f64 = 0.99;

/// The least speed-up for `auto`: measurements vary by as much.
const WORTHWHILE: f64 = 1.1;
