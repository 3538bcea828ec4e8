//! Measurement of time, bytes and memory per cut of a network on this machine. `docs/profiles.md` describes
//! the method and the validity of profiles.
//!
//! * [`candidates()`]: selects relevant cuts.
//! * [`measured_cuts`]: estimates the engine's memory usage up to a cut, based on the graph.
//! * [`efficient_rows`]: computes the batch size for CPUs, based on the graph.
//! * [`measure()`]: measures time and encoded sizes at cuts on any device, by using a
//!   [`GraphExecutor`](frostline_tensor::GraphExecutor).
//! * [`measure_encoding`]: measures an encoding for a batch of rows. [`encoded_pixels`] measures all encodings of
//!   pixels.
//! * [`cut_tensors`]: returns the tensors of a joint cut as requests and answers describe them.
//! * [`timed`]: measures work outside of this crate.
//! * [`machine()`]: returns the name of this machine.
//! * [`ProfileFolder`]: stores profiles on disk, with size and age limits.

mod candidates;
mod codec;
mod encoded;
mod error;
mod fit;
mod folder;
mod machine;
mod measure;
mod memory;
mod rows;
mod tensors;

#[cfg(test)]
mod tests;

pub use candidates::candidates;
pub use codec::measure_encoding;
pub use encoded::encoded_pixels;
pub use error::ProfileError;
pub use folder::{FolderError, ProfileFolder};
pub use machine::machine;
pub use measure::{Batches, MeasureOptions, MeasuredCut, MeasuredModel, Measurement, measure};
pub use memory::measured_cuts;
pub use rows::efficient_rows;
pub use tensors::cut_tensors;

use std::time::Instant;

/// Runs `work` twice and returns the second result with the smaller duration in seconds. Other load on the
/// machine can only increase durations, so the minimum is the best estimate.
///
/// # Errors
/// Returns the first error of `work`.
pub fn timed<T, E>(mut work: impl FnMut() -> Result<T, E>) -> Result<(T, f64), E> {
    let (_, first) = timed_once(&mut work)?;
    let (result, second) = timed_once(&mut work)?;
    Ok((result, first.min(second)))
}

/// Runs `work` and returns the result with the duration in seconds.
fn timed_once<T, E>(work: &mut impl FnMut() -> Result<T, E>) -> Result<(T, f64), E> {
    let started = Instant::now();
    work().map(|result| (result, started.elapsed().as_secs_f64()))
}
