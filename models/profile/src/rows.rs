use crate::memory::weight_bytes;
use frostline_graph::{GraphError, Model};

/// Number of multiply-adds with the same duration as reading a byte of weights, on one core. The value is
/// based on 37 billion multiply-adds and 13 GB per second (AMD EPYC).
const MULTIPLY_ADDS_PER_BYTE: f64 = 3.0;

/// Maximum fraction of the execution time for reading weights.
const READING: f64 = 0.02;

/// Returns the efficient batch size of `model` on a CPU core, up to `most`. It is the smallest power of two
/// for which reading the weights needs up to 2 % of the time. Larger batches are not faster, and their
/// tensors exceed the caches: compared with 4 rows, ViT-B/16 needs 10 % more time with 8 rows and about 17 %
/// more with 16 rows (benchmark `prefix --parts rows`). The result only depends on the graph, so equal jobs
/// produce equal bits. If shapes are unknown, the result is `most`.
///
/// # Errors
/// Returns [`GraphError::Shape`] if the inputs of a node have invalid shapes.
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
