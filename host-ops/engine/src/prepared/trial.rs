//! Tests a prepared stage before lanes use it.
//!
//! ONNX Runtime 1.31 writes weights in kernel layout without alignment. If the size of a constant is not a
//! multiple of 64 bytes, the matrix products after it read misaligned weights and crash.

use crate::tensor_spec::TensorSpec;
use crate::{EngineError, Interrupt, Session};
use frostline_tensor::{DType, Tensor};
use sha2::{Digest, Sha256};

/// Batch sizes of the test. Kernels for a single row differ from those for several rows.
const ROWS: [usize; 2] = [1, 2];

/// SHA-256 of a session's outputs for a batch. `None` if the batch cannot run.
pub(crate) type Computed = Option<[u8; 32]>;

/// Runs `session` on fixed batches. The results of two sessions are equal if they compute the same bits.
///
/// # Errors
/// Returns [`EngineError::Interrupted`] if `interrupt` is triggered.
pub(crate) fn try_out(session: &mut Session, interrupt: &Interrupt) -> Result<[Computed; 2], EngineError> {
    let mut results = [None, None];
    for (rows, result) in ROWS.into_iter().zip(&mut results) {
        let Some(inputs) = inputs(session, rows) else {
            continue;
        };
        let inputs: Vec<_> = inputs
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
            .collect();
        *result = match session.run_until(&inputs, interrupt) {
            Ok(outputs) => {
                let mut hash = Sha256::new();
                outputs
                    .iter()
                    .for_each(|(_, tensor)| hash.update(tensor.as_bytes()));
                Some(hash.finalize().into())
            }
            Err(error @ EngineError::Interrupted { .. }) => return Err(error),
            Err(_) => None,
        };
    }
    Ok(results)
}

/// Creates inputs with `rows` rows: floats from -1 to 1, and zeros for other types. Returns `None` if the
/// model does not declare their shapes.
fn inputs(session: &Session, rows: usize) -> Option<Vec<(String, Tensor)>> {
    let inputs = session.inputs().iter().map(|slot| {
        let TensorSpec { dtype, shape } = slot.batch_of(rows)?;
        let tensor = if dtype == DType::F32 {
            let count = shape.elements().ok()?;
            let values = (0..count).map(|index| (index as f32 * 0.618_034).fract() * 2.0 - 1.0);
            Tensor::f32(shape, values.collect())
        } else {
            Tensor::zeros(dtype, shape)
        };
        Some((slot.name.clone(), tensor.ok()?))
    });
    inputs.collect()
}
