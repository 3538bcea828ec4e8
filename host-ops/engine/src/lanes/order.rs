//! Tasks of lanes and their results.

use super::batch::{Batch, BatchRun, Output, RunEnd};
use super::job::RowJob;
use crate::Interrupt;
use frostline_tensor::{OpError, Stage};
use rustix::process::Signal;
use std::iter;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

pub(super) enum Task {
    Run(Arc<Order>),
    /// Close the sessions of these stages if they are open.
    Close(Vec<Stage>),
    /// Release the memory that the next batch would reuse, because no work is waiting.
    Rest,
}

/// An engine batch for a lane, with rows from any number of submissions.
pub(super) struct Order {
    pub(super) stage: Stage,
    pub(super) parts: Vec<Part>,
    /// Rows of the batch with padding.
    pub(super) rows: usize,
    /// Sessions to close before.
    pub(super) close: Vec<Stage>,
    /// Bytes to reserve in addition to the memory that the lane holds after closing sessions.
    pub(super) bytes: u64,
    pub(super) interrupt: Interrupt,
}

/// A submission's rows in an engine batch.
pub(super) struct Part {
    pub(super) id: u64,
    pub(super) job: Arc<RowJob>,
    pub(super) rows: Range<usize>,
}

pub(super) enum OrderResult {
    /// The lane still works. Contains an error for each part whose rows could not be stored.
    Ran(RunEnd<Vec<Option<OpError>>>),
    /// The memory for the batch could not be reserved.
    OutOfBudget,
    Lost(Loss),
}

/// Reason for the end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossCause {
    /// The network crashed, or the host killed the process because of a timeout or an exceeded limit.
    Run,
    /// The process ended with `SIGABRT`: native code aborted after a failed allocation or assertion.
    Itself,
    /// An external signal ended the process, for example from the out-of-memory killer or an operator.
    Other,
}

/// Description of a lost process.
pub(super) struct Loss {
    /// Text of the operating system or the host.
    pub(super) how: String,
    pub(super) by: LossCause,
}

impl Order {
    /// Combines the rows of all parts. Padding repeats the last row.
    ///
    /// # Errors
    /// Returns an error if the parts' rows have different types or shapes.
    pub(super) fn batch(&self) -> Result<Batch<'_>, OpError> {
        let rows: usize = self.parts.iter().map(|part| part.rows.len()).sum();
        let last = self.parts.last().filter(|part| !part.rows.is_empty());
        let padding = last.map(|part| (&part.job.batch, part.rows.end - 1..part.rows.end));
        let padding = iter::repeat_n(padding, self.rows.saturating_sub(rows)).flatten();
        let parts = self.parts.iter().map(|part| (&part.job.batch, part.rows.clone()));
        Batch::new(parts.chain(padding).collect())
    }

    pub(super) fn run<'a>(&'a self, batch: &'a Batch<'a>, reservation: Option<u64>) -> BatchRun<'a> {
        BatchRun {
            stage: &self.stage,
            batch,
            interrupt: &self.interrupt,
            reservation,
        }
    }

    /// Stores the rows of the output in the job of each part. Returns an error for each part that failed.
    pub(super) fn store_output(&self, output: &Output<'_>) -> Vec<Option<OpError>> {
        let mut from = 0;
        let kept = self.parts.iter().map(|part| {
            let rows = from..from + part.rows.len();
            from = rows.end;
            part.job.store_rows(output, rows, part.rows.clone()).err()
        });
        kept.collect()
    }

    /// Returns the tenant of all rows, or `None` if there are several.
    pub(super) fn tenant(&self) -> Option<Arc<str>> {
        let mut tenants = self.parts.iter().map(|part| &part.job.customer.tenant);
        let first = tenants.next()?;
        tenants.all(|tenant| tenant == first).then(|| Arc::clone(first))
    }

    /// Returns true if the batch cannot be split into fewer rows.
    pub(super) fn is_indivisible(&self) -> bool {
        self.rows <= 1
            || self
                .parts
                .first()
                .is_some_and(|part| part.job.customer.terms.terms.fixed_batch.is_some())
    }

    /// Returns true if the batch contains rows of multiple submissions.
    pub(super) fn is_joined(&self) -> bool {
        self.parts
            .iter()
            .any(|part| self.parts.first().is_some_and(|first| first.id != part.id))
    }
}

impl OrderResult {
    /// Creates the result for an error before the execution.
    pub(super) fn failed(error: OpError) -> Self {
        Self::Ran(RunEnd {
            outcome: Err(error.into()),
            memory: None,
            opened: None,
            time: Duration::ZERO,
        })
    }

    pub(super) fn loss(&self) -> Option<&Loss> {
        match self {
            Self::Lost(loss) => Some(loss),
            Self::Ran(_) | Self::OutOfBudget => None,
        }
    }
}

impl Loss {
    /// Classifies the exit status of a process. Exits caused by the host are handled elsewhere.
    pub(super) fn from_status(status: ExitStatus) -> Self {
        let ended_by = status.signal().and_then(Signal::from_named_raw);
        let by = match ended_by {
            Some(Signal::KILL | Signal::TERM | Signal::INT) => LossCause::Other,
            Some(Signal::ABORT) => LossCause::Itself,
            _ => LossCause::Run,
        };
        let how = match ended_by {
            Some(Signal::SYS) => {
                format!("{status}: the process made a system call that networks do not need")
            }
            _ => status.to_string(),
        };
        Self { how, by }
    }

    /// Describes the loss of an idle process.
    pub(super) fn idle() -> Self {
        Self {
            how: "the process ended while idle".to_owned(),
            by: LossCause::Other,
        }
    }
}
