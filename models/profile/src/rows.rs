use crate::memory::weight_bytes;
use frostline_graph::{GraphError, Model};

/// Multiply-adds that take a core as long as reading a byte of weights: 37 billion a second against 13 GB (AMD EPYC).
const MULTIPLY_ADDS_PER_BYTE: f64 = 3.0;

/// The share of a run's time that reading the weights may take.
const READING: f64 = 0.02;

/// The efficient number of rows for one run of `model` on a CPU core: the smallest power of two with which reading the weights takes at
/// most 2 % of the time, `most` at most. More rows gain nothing, and their tensors leave the caches: ViT-B/16 takes a tenth longer with
/// 8 rows than with 4, a sixth with 16 (benchmark `prefix --parts rows`). It depends on the graph alone, so that equal jobs compute
/// equal bits; where shapes are unknown it is `most`.
///
/// # Errors
/// [`GraphError::Shape`] when a node does not fit its inputs.
pub fn efficient_rows(model: &Model, most: usize) -> Result<usize, GraphError> {
    let weights: u64 = model.graph().initializer.iter().map(weight_bytes).sum();
    let read = weights as f64 * MULTIPLY_ADDS_PER_BYTE;
    let computed = model.multiply_adds()? * READING;
    let mut rows = 1;
    while rows < most && read > computed * rows as f64 {
        rows *= 2;
    }
    Ok(rows.min(most))
}
