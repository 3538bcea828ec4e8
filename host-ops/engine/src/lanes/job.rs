//! What somebody submitted, on its way through the lanes.

use super::batch::Output;
use super::run::{Customer, describe};
use frostline_tensor::{DType, OpError, OpErrorCode, Shape, ShapeError, Stage, Tensor};
use parking_lot::Mutex;
use std::ops::Range;
use tokio::sync::oneshot;
use tracing::Span;

pub(super) type Outcome = Result<Tensor, OpError>;
pub(super) type Reply = oneshot::Sender<Outcome>;

/// A batch through one network, in as many runs as that takes.
pub(super) struct Job {
    pub(super) customer: Customer,
    pub(super) stage: Stage,
    pub(super) batch: Tensor,
    rows: usize,
    /// What a row has to be that comes out, where that is known.
    row: Option<(DType, Shape)>,
    /// Where its log lines belong.
    pub(super) span: Span,
    /// Rows that came out so far, each in its place.
    output: Mutex<Option<Tensor>>,
}

impl Job {
    /// # Errors
    /// When `batch` has no rows to count, or no elements: kernels that are given nothing may leave their output unwritten.
    pub(super) fn new(
        customer: Customer,
        stage: Stage,
        batch: Tensor,
        row: Option<(DType, Shape)>,
    ) -> Result<Self, OpError> {
        if batch.byte_len() == 0 {
            let (stage, batch) = (describe(&stage), batch.describe());
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

    /// Keeps rows `from` of `output` as the rows `to` of what comes out.
    ///
    /// # Errors
    /// The host's when there is no memory for it; the network's when rows are not what the model makes, or differ between two runs.
    pub(super) fn keep(
        &self,
        output: &Output<'_>,
        from: Range<usize>,
        to: Range<usize>,
    ) -> Result<(), OpError> {
        let made = (output.dtype(), output.shape().row()?);
        if let Some(row) = self.row.as_ref().filter(|row| **row != made) {
            let stage = describe(&self.stage);
            return Err(OpError::runtime(format!(
                "{stage}: made rows of {}{}, and the model's are {}{}; upload it again",
                made.0, made.1, row.0, row.1
            )));
        }
        let shape = made.1.batched(self.rows);
        let mut kept = self.output.lock();
        let whole = match &mut *kept {
            Some(whole) => whole,
            none => {
                let fresh = Tensor::in_memory_of(None, output.dtype(), shape.clone());
                none.insert(fresh.map_err(|error| self.no_memory(&error))?)
            }
        };
        if *whole.shape() != shape || whole.dtype() != output.dtype() {
            let (stage, whole) = (describe(&self.stage), whole.describe());
            let text = format!(
                "{stage}: made rows of {}{shape} and of {whole} in turn; a stage has to make one kind of row",
                output.dtype()
            );
            return Err(OpError::runtime(text));
        }
        let width = whole.byte_len() / self.rows.max(1);
        let place = whole.as_bytes_mut().get_mut(to.start * width..to.end * width);
        output.read(from, place.unwrap_or_default())
    }

    /// What came out, once.
    pub(super) fn take_output(&self) -> Option<Tensor> {
        self.output.lock().take()
    }

    fn no_memory(&self, error: &ShapeError) -> OpError {
        let text = format!(
            "{}: this host has no memory for the output: {error}; try again",
            describe(&self.stage)
        );
        match error {
            ShapeError::Memory { .. } => OpError::of_host(OpErrorCode::RuntimeError, text),
            _ => OpError::runtime(text),
        }
    }
}
