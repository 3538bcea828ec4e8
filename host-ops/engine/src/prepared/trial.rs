//! Trying a prepared stage before a lane uses it.
//!
//! ONNX Runtime 1.31 writes weights in kernel layout behind each other without aligning them. Behind a constant whose size is not a multiple of
//! 64 bytes, its matrix products read them misaligned and crash.

use crate::{EngineError, Interrupt, Session};
use frostline_tensor::{DType, Tensor};
use sha2::{Digest, Sha256};

/// Rows of the batches that are tried: one row takes other kernels than several.
const ROWS: [usize; 2] = [1, 2];

/// The SHA-256 of what a session computes from a batch; `None` if it cannot run the batch.
pub(crate) type Computed = Option<[u8; 32]>;

/// Runs `session` on fixed batches. The results of two sessions are equal if they compute the same bits.
///
/// # Errors
/// [`EngineError::Interrupted`].
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

/// Inputs of `rows` rows: floating-point numbers from -1 to 1, zeros of other types. `None` if the model does not declare their shapes.
fn inputs(session: &Session, rows: usize) -> Option<Vec<(String, Tensor)>> {
    let inputs = session.inputs().iter().map(|slot| {
        let (dtype, shape) = slot.batch_of(rows)?;
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
