use crate::memory::weight_bytes;
use frostline_graph::{GraphError, Model};

/// Multiply-adds that take a core as long as reading a byte of weights: 37 billion a second against 13 GB (AMD EPYC).
const BYTE: f64 = 3.0;

/// The share of a run that reading the weights may take.
const SHARE: f64 = 0.02;

/// Rows of a run that are worth it on a CPU: the smallest power of two with which reading the weights takes at most a fiftieth of the run,
/// `most` at most. More rows gain nothing, and their tensors leave the caches: ViT-B/16 takes a tenth longer with 8 rows than with 4,
/// a sixth with 16 (`docs/profiles.md`). Told from the graph, so that equal jobs compute equal bits.
///
/// # Errors
/// [`GraphError::Shape`] when a node does not fit its inputs.
pub fn efficient_rows(model: &Model, most: usize) -> Result<usize, GraphError> {
    let weights: u64 = model.graph().initializer.iter().map(weight_bytes).sum();
    let read = weights as f64 * BYTE;
    let computed = model.multiply_adds()? * SHARE;
    let mut rows = 1;
    while rows < most && read > computed * rows as f64 {
        rows *= 2;
    }
    Ok(rows.min(most))
}
