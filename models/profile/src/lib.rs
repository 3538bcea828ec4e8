//! What a network takes on the machine at hand: seconds, bytes and memory at its cuts. `docs/profiles.md` says what is
//! measured, how, and when it is stale.
//!
//! * [`candidates`]: the cuts of a network that are worth considering
//! * [`memory`]: what an engine holds to get to a cut, told from the graph
//! * [`efficient_rows`]: how many rows one run on a CPU should have, from the graph
//! * [`measure`]: seconds and encoded sizes at cuts, through a [`GraphExecutor`](frostline_tensor::GraphExecutor), so on
//!   any device
//! * [`codec`]: real rows in one encoding; [`encoded_pixels`]: pixels in every one
//! * [`timed`]: work that is measured outside of this crate
//! * [`machine`]: what to call this machine
//! * [`ProfileFolder`]: profiles on disk, bounded, with an age limit

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

#[cfg(test)]
mod tests;

pub use candidates::candidates;
pub use codec::codec;
pub use encoded::encoded_pixels;
pub use error::ProfileError;
pub use folder::{FolderError, ProfileFolder};
pub use machine::machine;
pub use measure::{Batches, MeasuredModel, Measurement, Rules, measure};
pub use memory::memory;
pub use rows::efficient_rows;

use std::time::Instant;

/// Seconds since 1970, as profiles note when they were measured.
pub fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// What `work` returns and the seconds it takes: the least of two runs, for whatever else goes on in a machine only adds to it.
///
/// # Errors
/// The work's own.
pub fn timed<T, E>(mut work: impl FnMut() -> Result<T, E>) -> Result<(T, f64), E> {
    let mut once = || {
        let started = Instant::now();
        work().map(|result| (result, started.elapsed().as_secs_f64()))
    };
    let (_, first) = once()?;
    let (result, second) = once()?;
    Ok((result, first.min(second)))
}
