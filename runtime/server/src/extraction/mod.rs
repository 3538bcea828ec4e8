//! Extractions: the path from a request that was read to the pieces of its answer. [`Extraction::start`] is worth reading first.

mod calls;
mod check;
mod drive;
mod encoder;
mod size;
mod work;

pub(crate) use check::{check_samples, check_view};
pub(crate) use drive::{ClientRequest, Extraction, Piece, Timing};
pub(crate) use size::DEFAULT_GRANT;
pub(crate) use work::READS_AT_ONCE;
