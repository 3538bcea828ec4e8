//! Extractions: the path from a request that was read to the pieces of its answer. [`Extraction::begin`] is worth reading first.

mod admission;
mod calls;
mod check;
mod desk;
mod drive;
mod encoder;
mod lines;
mod work;

pub(crate) use admission::{Admission, Place};
pub(crate) use check::check_samples;
pub(crate) use desk::GrantDesk;
pub(crate) use drive::{Extraction, Piece};
pub(crate) use lines::Standing;
