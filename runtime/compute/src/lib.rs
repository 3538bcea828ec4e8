//! Computation on the trainer: the layers from the split to the freeze cut, training steps, and forward passes.
//!
//! * [`Suffix`]: the trainable layers with their state, opened from [`SuffixParts`]. It computes activations at the
//!   freeze cut, trains on them and on [`Targets`] by [`StepTerms`], and returns outputs and weights.
//! * [`SuffixState`]: the exact state between two steps, for checkpoints.
//! * [`Forward`]: forward pass of any layers, with results that do not depend on the batch size.
//! * [`Standard`]: standardization of features or numeric targets, computed from [`Moments`]. [`LinearHead`] converts a
//!   classifier trained on standardized features to raw features.
//! * [`Mix`]: MixUp and CutMix of a batch.
//! * [`Dedicated`]: a thread that owns a value, so that fetching continues in parallel.
//!
//! Batches are tensors `[rows, ..]`. Activations, targets, losses and weights are in `f32`, also if the network
//! has layers in half precision. This crate does not communicate.

mod dedicated;
mod error;
mod forward;
mod mix;
mod standard;
mod state;
mod step;
mod suffix;
mod targets;
#[cfg(test)]
mod tests;

pub use dedicated::Dedicated;
pub use error::ComputeError;
pub use forward::{Forward, measured_rows, most_rows, session_options};
pub use mix::Mix;
pub use standard::{LinearHead, Moments, Standard};
pub use state::SuffixState;
pub use step::StepTerms;
pub use suffix::{KEPT_MIDDLES, Suffix, SuffixParts};
pub use targets::Targets;
