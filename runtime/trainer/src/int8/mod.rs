//! The frozen layers in int8: calibrated on images of the data, tried against f32, and used or not. `docs/int8.md` tells how.

mod calibrate;
mod decide;
mod record;

pub(crate) use decide::{Candidate, IMAGES, RoundedModel, decide_for};
pub(crate) use record::Int8Record;

/// The least mean cosine between rows in int8 and in f32 that passes without being allowed: linear probes on SqueezeNet's rows at 0.99
/// are as accurate as on its f32 rows, and a transformer that plain rounding broke had 0.97.
pub(crate) const EXACT_ENOUGH: f64 = 0.99;

/// `auto` takes int8 from this many times the speed of f32: less is lost in the noise of measuring.
const WORTHWHILE: f64 = 1.1;
