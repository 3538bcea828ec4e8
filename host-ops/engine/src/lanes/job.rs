//! Submissions in progress.

use super::batch::Output;
use super::run::{Submitter, describe};
use crate::tensor_spec::TensorSpec;
use frostline_tensor::{
    DType, OpError, OpErrorCode, Precision, Shape, ShapeError, Stage, Tensor, all_finite,
};
use parking_lot::Mutex;
use std::ops::Range;
use tokio::sync::oneshot;
use tracing::Span;

pub(super) type Outcome = Result<Tensor, OpError>;
pub(super) type Reply = oneshot::Sender<Outcome>;

/// A batch and a network. It runs in one or more engine batches.
pub(super) struct RowJob {
    pub(super) customer: Submitter,
    pub(super) stage: Stage,
    pub(super) batch: Tensor,
    rows: usize,
    /// Expected type and shape of output rows, if known.
    row: Option<(DType, Shape)>,
    /// Span of the caller, for log lines.
    pub(super) span: Span,
    /// Finished output rows.
    output: Mutex<Option<Tensor>>,
}

impl RowJob {
    /// Creates a job without output.
    ///
    /// # Errors
    /// Returns an error if `batch` has no row dimension or no elements. Kernels may leave their output
    /// unwritten for empty inputs.
    pub(super) fn new(
        customer: Submitter,
        stage: Stage,
        batch: Tensor,
        row: Option<(DType, Shape)>,
    ) -> Result<Self, OpError> {
        if batch.byte_len() == 0 {
            let stage = describe(&stage);
            let batch = batch.describe();
            return Err(OpError::invalid(format!(
                "{stage}: {batch} has an axis of size 0"
            )));
        }
        Ok(Self {
            rows: batch.rows()?,
            row,
            customer,
            stage,
            batch,
            span: Span::current(),
            output: Mutex::default(),
        })
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Stores the rows `from` of `output` as the rows `to` of the job's output.
    ///
    /// # Errors
    /// Returns an error of the host if the output cannot be allocated, and an error of the network if rows
    /// have another type or shape than expected or than in an earlier batch, or if rows computed in f16
    /// exceed its range.
    pub(super) fn store_rows(
        &self,
        output: &Output<'_>,
        from: Range<usize>,
        to: Range<usize>,
    ) -> Result<(), OpError> {
        let TensorSpec { dtype, shape } = &output.spec;
        let dtype = *dtype;
        let made = (dtype, shape.row()?);
        if let Some(row) = self.row.as_ref().filter(|row| **row != made) {
            let stage = describe(&self.stage);
            return Err(OpError::runtime(format!(
                "{stage}: the output rows are {}{}, but the model's are {}{}; upload the model again",
                made.0, made.1, row.0, row.1
            )));
        }
        let shape = made.1.batched(self.rows);
        let mut kept = self.output.lock();
        let whole = match &mut *kept {
            Some(whole) => whole,
            none => {
                let fresh = Tensor::in_memory_of(None, dtype, shape.clone());
                none.insert(fresh.map_err(|error| self.no_memory(&error))?)
            }
        };
        if *whole.shape() != shape || whole.dtype() != dtype {
            let stage = describe(&self.stage);
            let whole = whole.describe();
            let text = format!(
                "{stage}: the output is {dtype}{shape}, but was {whole} in an earlier batch; all rows of a stage must have the same type and shape"
            );
            return Err(OpError::runtime(text));
        }
        let width = whole.byte_len() / self.rows.max(1);
        let place = whole.as_bytes_mut().get_mut(to.start * width..to.end * width);
        output.read(from, place.unwrap_or_default())?;
        if self.stage.precision != Precision::F16 {
            return Ok(());
        }
        let width = width / size_of::<f32>();
        let stored = whole
            .as_f32()
            .and_then(|rows| rows.get(to.start * width..to.end * width));
        if stored.is_none_or(all_finite) {
            return Ok(());
        }
        Err(OpError::runtime(format!(
            "{}: an activation exceeds the range of f16 (65504) or is not a number; use tf32 or full precision",
            describe(&self.stage)
        )))
    }

    pub(super) fn take_output(&self) -> Option<Tensor> {
        self.output.lock().take()
    }

    fn no_memory(&self, error: &ShapeError) -> OpError {
        let text = format!(
            "{}: this host has not enough memory for the output: {error}; try again",
            describe(&self.stage)
        );
        match error {
            ShapeError::Memory { .. } => OpError::from_host(OpErrorCode::RuntimeError, text),
            _ => OpError::runtime(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::View;

    fn stored(precision: Precision, rows: [f32; 4]) -> Result<(), OpError> {
        let stage = Stage {
            model: "5e".to_owned(),
            from: "x".to_owned(),
            to: "y".to_owned(),
            pixels: None,
            precision,
        };
        let batch = Tensor::f32([1, 2], vec![0.0; 2]).unwrap();
        let job = RowJob::new(Submitter::new("tenant"), stage, batch, None).unwrap();
        let output = Tensor::f32([2, 2], rows.to_vec()).unwrap();
        let view = View {
            spec: TensorSpec {
                dtype: output.dtype(),
                shape: output.shape().clone(),
            },
            bytes: output.as_bytes(),
        };
        job.store_rows(&Output::here(view), 1..2, 0..1)
    }

    #[test]
    fn rows_beyond_the_range_of_f16_are_refused() {
        for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let error = stored(Precision::F16, [0.0, 0.0, 1.0, value]).unwrap_err();
            assert!(error.message.contains("use tf32 or full precision"), "{error}");
            assert!(!error.host_caused);
            // Rows of other submissions do not count.
            assert_eq!(stored(Precision::F16, [value, 0.0, 1.0, 65_504.0]), Ok(()));
            for other in [Precision::Full, Precision::Tf32] {
                assert_eq!(stored(other, [0.0, 0.0, 1.0, value]), Ok(()));
            }
        }
    }
}
