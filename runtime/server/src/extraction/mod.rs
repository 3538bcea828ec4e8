//! Extractions, from a parsed request to the pieces of the answer. Start reading at [`Extraction::start`].

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
