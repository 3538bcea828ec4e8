//! What goes into a run and what comes out of it, where it lies: rows are joined and cut without a copy of their own.

use super::child::window::Window;
use super::run::describe;
use crate::values::View;
use crate::{EngineError, Interrupt};
use frostline_tensor::{DType, OpError, Shape, Stage, Tensor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// One batch through one network, on one lane.
pub(super) struct BatchRun<'a> {
    pub(super) stage: &'a Stage,
    pub(super) batch: &'a Batch<'a>,
    pub(super) interrupt: &'a Interrupt,
    /// Bytes that it may take beyond what the lane holds; what goes beyond ends it as [`RunError::OutOfMemory`]. `None` sets no
    /// bound.
    pub(super) reservation: Option<u64>,
}

/// How a run ended.
pub(super) struct RunEnd<T> {
    pub(super) outcome: Result<T, RunError>,
    /// What it took of memory, where the system tells.
    pub(super) memory: Option<RunMemory>,
    /// The session that was opened for it.
    pub(super) opened: Option<Opened>,
    /// From when the session was there until the output lay ready.
    pub(super) time: Duration,
}

/// Bytes that only the lane's process has: no files that it maps, no window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunMemory {
    /// The most that the run took at a time, its batch and output included, beyond what was held before. `None` where it cannot be
    /// told: the run was the first to touch much of a file that is mapped.
    pub(super) taken: Option<u64>,
    /// What the process holds since.
    pub(super) held: u64,
    /// What malloc had kept of earlier runs: nobody sees how much of that the run used, so it may have taken so much more.
    pub(super) spare: u64,
}

/// A session that was opened for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Opened {
    /// What it took, with getting the network.
    pub(super) time: Duration,
    /// The most that opening it took at a time beyond what was held before, the network's bytes included, where the system tells.
    pub(super) taken: Option<u64>,
}

/// Why a run has no output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RunError {
    /// There was no memory for it within its reservation; fewer rows may do.
    OutOfMemory(OpError),
    /// Whatever else.
    Failed(OpError),
}

impl From<OpError> for RunError {
    fn from(error: OpError) -> Self {
        Self::Failed(error)
    }
}

impl RunError {
    /// For the caller.
    pub(super) fn into_told(self) -> OpError {
        match self {
            Self::OutOfMemory(error) | Self::Failed(error) => error,
        }
    }

    /// `error` as one of `stage`.
    pub(super) fn about(stage: &Stage, error: &EngineError) -> Self {
        let told = super::run::about(stage, error);
        match error {
            EngineError::OutOfMemory { .. } => Self::OutOfMemory(told),
            _ => Self::Failed(told),
        }
    }
}

/// Rows of tensors, one behind another. Rows to fill up with are rows that are named again.
pub(super) struct Batch<'a> {
    dtype: DType,
    shape: Shape,
    parts: Vec<(&'a Tensor, Range<usize>)>,
}

impl<'a> Batch<'a> {
    /// # Errors
    /// [`OpError`] when there are none, one of them lies outside its tensor, or the rows differ in type or shape.
    pub(super) fn new(parts: Vec<(&'a Tensor, Range<usize>)>) -> Result<Self, OpError> {
        let (first, _) = parts
            .first()
            .ok_or_else(|| OpError::invalid("a batch of nothing"))?;
        let (dtype, row) = (first.dtype(), first.shape().row()?);
        let mut rows = 0_usize;
        for (tensor, range) in &parts {
            let fits = tensor.dtype() == dtype
                && tensor.shape().row()? == row
                && range.start <= range.end
                && range.end <= tensor.rows()?;
            if !fits {
                let (first, other) = (first.describe(), tensor.describe());
                return Err(OpError::invalid(format!(
                    "rows {range:?} of {other} do not fit {first}"
                )));
            }
            rows = rows.saturating_add(range.len());
        }
        let shape = row.batched(rows);
        shape.bytes(dtype.size())?;
        Ok(Self { dtype, shape, parts })
    }

    #[cfg(test)]
    pub(super) fn rows(&self) -> usize {
        self.shape.rows().unwrap_or(0)
    }

    pub(super) fn spec(&self) -> TensorSpec {
        TensorSpec {
            dtype: self.dtype,
            shape: self.shape.clone(),
        }
    }

    /// The bytes of each part, in order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|(tensor, range)| {
            let row = tensor.byte_len() / tensor.rows().unwrap_or(1).max(1);
            tensor
                .as_bytes()
                .get(range.start * row..range.end * row)
                .unwrap_or(&[])
        })
    }

    /// The rows as one tensor; a copy unless they are one.
    pub(super) fn tensor(&self) -> Result<Cow<'a, Tensor>, OpError> {
        if let [(tensor, range)] = self.parts.as_slice()
            && range.len() == tensor.rows()?
        {
            return Ok(Cow::Borrowed(tensor));
        }
        let mut joined = Tensor::zeros(self.dtype, self.shape.clone())?;
        let mut rest = joined.as_bytes_mut();
        for piece in self.pieces() {
            let (here, after) = rest.split_at_mut_checked(piece.len()).unwrap_or_default();
            here.copy_from_slice(piece);
            rest = after;
        }
        Ok(Cow::Owned(joined))
    }
}

/// The output of a run, where it lies.
pub(super) struct Output<'a> {
    spec: TensorSpec,
    place: Place<'a>,
}

enum Place<'a> {
    /// In the engine's memory.
    Here(&'a [u8]),
    /// In the window of the lane's process.
    Window(&'a Window),
}

impl<'a> Output<'a> {
    pub(super) fn here(view: &View<'a>) -> Self {
        Self {
            spec: TensorSpec {
                dtype: view.dtype,
                shape: view.shape.clone(),
            },
            place: Place::Here(view.bytes),
        }
    }

    /// The elements, where they lie in this process.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self.place {
            Place::Here(bytes) => Some(bytes),
            Place::Window(_) => None,
        }
    }

    /// What a process left in `window`.
    ///
    /// # Errors
    /// When so many bytes do not lie there.
    pub(super) fn in_window(window: &'a Window, spec: TensorSpec) -> io::Result<Self> {
        window.check(spec.bytes())?;
        Ok(Self {
            spec,
            place: Place::Window(window),
        })
    }

    pub(super) fn dtype(&self) -> DType {
        self.spec.dtype
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.spec.shape
    }

    /// Shape and type for messages, as [`Tensor::describe`].
    pub(super) fn describe(&self) -> String {
        format!("{}{}", self.dtype(), self.shape())
    }

    pub(super) fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// All rows, as a tensor.
    #[cfg(test)]
    pub(super) fn whole(&self) -> Result<Tensor, OpError> {
        self.tensor(0..self.shape().rows()?)
    }

    /// `rows`, as a tensor.
    #[cfg(test)]
    pub(super) fn tensor(&self, rows: Range<usize>) -> Result<Tensor, OpError> {
        let mut target = Tensor::zeros(self.dtype(), self.shape().row()?.batched(rows.len()))?;
        self.read(rows, target.as_bytes_mut())?;
        Ok(target)
    }

    /// Copies `rows` to `target`, which must be as long.
    ///
    /// # Errors
    /// [`OpError`] when there are no such rows, or they do not fit.
    pub(super) fn read(&self, rows: Range<usize>, target: &mut [u8]) -> Result<(), OpError> {
        let row = self.shape().row()?.bytes(self.dtype().size())?;
        let fits = rows.end <= self.shape().rows()? && rows.len().checked_mul(row) == Some(target.len());
        if !fits {
            let text = format!(
                "rows {rows:?} of {} are not {} bytes",
                self.describe(),
                target.len()
            );
            return Err(OpError::runtime(text));
        }
        let from = rows.start * row;
        match self.place {
            Place::Here(bytes) => {
                let rows = bytes.get(from..from + target.len());
                target.copy_from_slice(rows.unwrap_or_default());
                Ok(())
            }
            Place::Window(window) => window.read_at(target, from).map_err(|error| {
                OpError::of_host(
                    frostline_tensor::OpErrorCode::RuntimeError,
                    format!("cannot take the output from the lane's process: {error}; try again"),
                )
            }),
        }
    }
}

/// Type and shape of a tensor that lies elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TensorSpec {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
}

impl TensorSpec {
    /// Bytes of its elements; more than there can be when they cannot be counted.
    pub(super) fn bytes(&self) -> usize {
        self.shape.bytes(self.dtype.size()).unwrap_or(usize::MAX)
    }
}

/// The rows of what came out must be those of what went in.
pub(super) fn same_rows(stage: &Stage, batch: &Tensor, made: &Output<'_>) -> Result<(), OpError> {
    if made.shape().rows()? == batch.rows()? {
        return Ok(());
    }
    Err(OpError::runtime(format!(
        "{}: made {} from {}, the rows differ",
        describe(stage),
        made.describe(),
        batch.describe(),
    )))
}
