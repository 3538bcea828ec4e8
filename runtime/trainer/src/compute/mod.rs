//! Computation on the trainer: middle layers, training steps and validation. It runs on a dedicated thread,
//! so fetching continues in parallel.

mod forward;
mod state;
mod step;
mod suffix;
mod thread;

pub(crate) use forward::{Forward, measured_rows, most_rows};
pub(crate) use state::SuffixState;
pub(crate) use step::not_trained;
pub(crate) use suffix::{KEPT_MIDDLES, Suffix, SuffixParts};
pub(crate) use thread::{Dedicated, blocking, session_options};
