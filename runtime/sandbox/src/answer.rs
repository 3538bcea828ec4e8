//! Validates the answers of guests before the host uses them.

use crate::bindings::frostline::pushdown::types;
use crate::call::{Call, Extracted};
use crate::error::SandboxError;
use crate::imports::code_from_guest;
use crate::text::{MAX_MESSAGE_BYTES, one_line};
use frostline_tensor::{DType, OpError, SampleFailure, Tensor};

pub(crate) fn failure(error: &types::Error) -> SandboxError {
    SandboxError::Failed(op_error(error))
}

fn op_error(error: &types::Error) -> OpError {
    OpError::new(
        code_from_guest(error.code),
        one_line(&error.message, MAX_MESSAGE_BYTES),
    )
}

/// Validates the result of an extraction. Each of the `sample_count` samples must have either a failure or an
/// activation of the shape expected by `call`.
pub(crate) fn extracted(
    activations: Tensor,
    failed: Vec<types::FailedSample>,
    sample_count: usize,
    call: &Call,
) -> Result<Extracted, SandboxError> {
    let failed = failures(failed, sample_count)?;
    let rows = activations.rows().unwrap_or(0);
    if rows + failed.len() != sample_count {
        return Err(SandboxError::bad_answer(format!(
            "{rows} rows and {} failed samples for {sample_count} samples",
            failed.len()
        )));
    }
    if activations.dtype() != DType::F32 || activations.shape() != &call.row.batched(rows) {
        return Err(SandboxError::bad_answer(format!(
            "the activations are {}, expected f32{2} per sample at the split {1:?}",
            activations.describe(),
            call.split,
            call.row
        )));
    }
    Ok(Extracted { activations, failed })
}

fn failures(
    failed: Vec<types::FailedSample>,
    sample_count: usize,
) -> Result<Vec<SampleFailure>, SandboxError> {
    let mut failures = Vec::new();
    let mut next = 0;
    for sample in failed {
        let index = usize::try_from(sample.index).unwrap_or(usize::MAX);
        if index >= sample_count || index < next {
            return Err(SandboxError::bad_answer(format!(
                "failed sample {index} of {sample_count}: indices must be ascending and below the number of samples"
            )));
        }
        next = index + 1;
        failures.push(SampleFailure {
            index,
            error: op_error(&sample.error),
        });
    }
    Ok(failures)
}
