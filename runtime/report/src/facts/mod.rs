//! Values derived from the contents of a run folder.

mod candidates;
mod classes;
mod curves;
mod timeline;

pub(crate) use candidates::{CandidateComparison, compare_candidates};
pub(crate) use classes::{Class, Classes};
pub(crate) use curves::{epoch_series, step_series};
pub(crate) use timeline::{Span, Timeline};
