//! Input and output of an execution. Rows are joined and split without extra copies.

use super::child::window::Window;
use super::run::describe;
use crate::tensor_spec::TensorSpec;
use crate::values::View;
use crate::{EngineError, Interrupt};
use frostline_tensor::{OpError, Stage, Tensor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// Execution of an engine batch on a lane.
pub(super) struct BatchRun<'a> {
    pub(super) stage: &'a Stage,
    pub(super) batch: &'a Batch<'a>,
    pub(super) interrupt: &'a Interrupt,
    /// Bytes that the execution may use in addition to the memory that the lane holds. Exceeding this limit
    /// ends the execution with [`RunError::OutOfMemory`]. `None` sets no limit.
    pub(super) reservation: Option<u64>,
}

/// Result of an execution.
pub(super) struct RunEnd<T> {
    pub(super) outcome: Result<T, RunError>,
    /// Memory usage, if the system reports it.
    pub(super) memory: Option<RunMemory>,
    /// The session, if the execution had to open it.
    pub(super) opened: Option<Opened>,
    /// Time between the opened session and the finished output.
    pub(super) time: Duration,
}

/// Memory of the lane's process in bytes: device memory if a device's ledger bounds the lanes, otherwise
/// private memory. Mapped files are excluded. The process reports private memory without the window, which
/// the host adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunMemory {
    /// Peak usage above the memory held before the execution, including batch and output. `None` if unknown
    /// because the execution was the first to touch large parts of a mapped file.
    pub(super) taken: Option<u64>,
    /// Memory that the process holds after the execution.
    pub(super) held: u64,
    /// Memory that malloc had retained from earlier executions. Using it does not raise the peak, so the
    /// actual usage may be higher by this amount. This is 0 for device memory.
    pub(super) spare: u64,
}

/// A newly opened session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Opened {
    /// Time to load the network and open the session.
    pub(super) time: Duration,
    /// Peak usage above the memory held before, including the network's bytes, if the system reports it.
    pub(super) taken: Option<u64>,
    /// True if the session uses the prepared form of the stage.
    pub(super) prepared: bool,
}

/// Failure of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RunError {
    /// The reservation was exceeded. Fewer rows may fit.
    OutOfMemory(OpError),
    /// Any other failure.
    Failed(OpError),
}

impl From<OpError> for RunError {
    fn from(error: OpError) -> Self {
        Self::Failed(error)
    }
}

impl RunError {
    /// Converts `error` and adds the name of `stage`.
    pub(super) fn about(stage: &Stage, error: &EngineError) -> Self {
        let told = super::run::about(stage, error);
        match error {
            EngineError::OutOfMemory { .. } => Self::OutOfMemory(told),
            _ => Self::Failed(told),
        }
    }
}

/// Rows of several tensors in order. Padding repeats rows.
pub(super) struct Batch<'a> {
    pub(super) spec: TensorSpec,
    parts: Vec<(&'a Tensor, Range<usize>)>,
}

impl<'a> Batch<'a> {
    /// Combines rows of tensors.
    ///
    /// # Errors
    /// Returns an error if `parts` is empty, if a range exceeds the tensor's rows, or if types or row shapes
    /// differ.
    pub(super) fn new(parts: Vec<(&'a Tensor, Range<usize>)>) -> Result<Self, OpError> {
        let (first, _) = parts
            .first()
            .ok_or_else(|| OpError::invalid("the batch is empty"))?;
        let dtype = first.dtype();
        let row = first.shape().row()?;
        let mut rows = 0_usize;
        for (tensor, range) in &parts {
            let fits = tensor.dtype() == dtype
                && tensor.shape().row()? == row
                && range.start <= range.end
                && range.end <= tensor.rows()?;
            if !fits {
                let first = first.describe();
                let other = tensor.describe();
                return Err(OpError::invalid(format!(
                    "rows {range:?} of {other} do not fit {first}"
                )));
            }
            rows = rows.saturating_add(range.len());
        }
        let shape = row.batched(rows);
        shape.bytes(dtype.size())?;
        let spec = TensorSpec { dtype, shape };
        Ok(Self { spec, parts })
    }

    #[cfg(test)]
    pub(super) fn rows(&self) -> usize {
        self.spec.shape.rows().unwrap_or(0)
    }

    /// Returns the bytes of each part in order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|(tensor, range)| {
            let row = tensor.byte_len() / tensor.rows().unwrap_or(1).max(1);
            tensor
                .as_bytes()
                .get(range.start * row..range.end * row)
                .unwrap_or(&[])
        })
    }

    /// Returns the rows as a single tensor, which is a copy unless the batch consists of all rows of one
    /// tensor.
    pub(super) fn tensor(&self) -> Result<Cow<'a, Tensor>, OpError> {
        if let [(tensor, range)] = self.parts.as_slice()
            && range.len() == tensor.rows()?
        {
            return Ok(Cow::Borrowed(tensor));
        }
        let mut joined = Tensor::zeros(self.spec.dtype, self.spec.shape.clone())?;
        let mut rest = joined.as_bytes_mut();
        for piece in self.pieces() {
            let (here, after) = rest.split_at_mut_checked(piece.len()).unwrap_or_default();
            here.copy_from_slice(piece);
            rest = after;
        }
        Ok(Cow::Owned(joined))
    }
}

/// Output that still has to be copied.
pub(super) struct Output<'a> {
    pub(super) spec: TensorSpec,
    place: OutputLocation<'a>,
}

enum OutputLocation<'a> {
    /// In this process.
    Here(&'a [u8]),
    /// In the window of the lane's process.
    Window(&'a Window),
}

impl<'a> Output<'a> {
    pub(super) fn here(view: View<'a>) -> Self {
        Self {
            spec: view.spec,
            place: OutputLocation::Here(view.bytes),
        }
    }

    /// Returns the elements if they are in this process.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self.place {
            OutputLocation::Here(bytes) => Some(bytes),
            OutputLocation::Window(_) => None,
        }
    }

    /// Refers to an output in `window`.
    ///
    /// # Errors
    /// Returns an error if the window contains fewer bytes, or if the output exceeds the maximum size of a
    /// tensor.
    pub(super) fn in_window(window: &'a Window, spec: TensorSpec) -> io::Result<Self> {
        window.check(spec.bytes())?;
        Ok(Self {
            spec,
            place: OutputLocation::Window(window),
        })
    }

    /// Copies all rows to a tensor.
    #[cfg(test)]
    pub(super) fn whole(&self) -> Result<Tensor, OpError> {
        self.tensor(0..self.spec.shape.rows()?)
    }

    /// Copies `rows` to a tensor.
    #[cfg(test)]
    pub(super) fn tensor(&self, rows: Range<usize>) -> Result<Tensor, OpError> {
        let mut target = Tensor::zeros(self.spec.dtype, self.spec.shape.row()?.batched(rows.len()))?;
        self.read(rows, target.as_bytes_mut())?;
        Ok(target)
    }

    /// Copies `rows` to `target`, which must have the same length.
    ///
    /// # Errors
    /// Returns an error if the output has fewer rows, the length differs, or the window cannot be read.
    pub(super) fn read(&self, rows: Range<usize>, target: &mut [u8]) -> Result<(), OpError> {
        let TensorSpec { dtype, shape } = &self.spec;
        let row = shape.row()?.bytes(dtype.size())?;
        let fits = rows.end <= shape.rows()? && rows.len().checked_mul(row) == Some(target.len());
        if !fits {
            let text = format!("rows {rows:?} of {} are not {} bytes", self.spec, target.len());
            return Err(OpError::runtime(text));
        }
        let from = rows.start * row;
        match self.place {
            OutputLocation::Here(bytes) => {
                let rows = bytes.get(from..from + target.len());
                target.copy_from_slice(rows.unwrap_or_default());
                Ok(())
            }
            OutputLocation::Window(window) => window.read_at(target, from).map_err(|error| {
                OpError::from_host(
                    frostline_tensor::OpErrorCode::RuntimeError,
                    format!("cannot read the output of the lane's process: {error}; try again"),
                )
            }),
        }
    }
}

/// Checks that output and batch have the same number of rows.
pub(super) fn same_rows(stage: &Stage, batch: &Tensor, made: &Output<'_>) -> Result<(), OpError> {
    if made.spec.shape.rows()? == batch.rows()? {
        return Ok(());
    }
    Err(OpError::runtime(format!(
        "{}: output {} and batch {} have different numbers of rows",
        describe(stage),
        made.spec,
        batch.describe(),
    )))
}
