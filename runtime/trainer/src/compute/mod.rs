//! What the trainer computes itself: the middle, the training step, the forward pass that validates. It runs on one
//! thread of its own, so that fetching continues meanwhile.

mod forward;
mod state;
mod step;
mod suffix;
mod thread;

pub(crate) use forward::{Forward, most_rows, rows_for};
pub(crate) use state::SuffixState;
pub(crate) use step::not_trained;
pub(crate) use suffix::{KEPT_MIDDLES, Suffix, SuffixParts};
pub(crate) use thread::{Dedicated, blocking, session_options};
