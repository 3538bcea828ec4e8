//! What a lane is told to run, and how that ended.

use super::batch::{Batch, BatchRun, Output, RunEnd};
use super::job::Job;
use crate::Interrupt;
use frostline_tensor::{OpError, Stage};
use rustix::process::Signal;
use std::iter;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

/// What a lane is to do.
pub(super) enum Task {
    Run(Arc<Order>),
    /// Close the sessions of these stages, if they are there.
    Close(Vec<Stage>),
    /// Keep no memory for the next run: none comes for now.
    Rest,
}

/// One batch through one network: rows of one submission or of several.
pub(super) struct Order {
    pub(super) stage: Stage,
    pub(super) parts: Vec<Part>,
    /// Rows of the batch; those beyond the parts' are padding.
    pub(super) rows: usize,
    /// Sessions to close before.
    pub(super) close: Vec<Stage>,
    /// Bytes that it may take beyond what the lane holds then.
    pub(super) bytes: u64,
    pub(super) interrupt: Interrupt,
}

/// Rows of a submission in a run.
pub(super) struct Part {
    pub(super) id: u64,
    pub(super) job: Arc<Job>,
    pub(super) rows: Range<usize>,
}

/// How a run ended.
pub(super) enum Ended {
    /// The lane is as it was. Of each part, why its rows could not be kept.
    Ran(RunEnd<Vec<Option<OpError>>>),
    /// There was no memory left to reserve for it.
    OutOfBudget,
    /// The lane's process is gone.
    Lost(Loss),
}

/// Who ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossBy {
    /// What it ran, or the host that waited in vain.
    Run,
    /// It itself (`SIGABRT`), as native code does that is refused memory, and that checks what it believes.
    Itself,
    /// Somebody who was not the host, such as a system without memory, or who ends all its processes.
    Other,
}

/// How a process was lost.
pub(super) struct Loss {
    /// As the system tells.
    pub(super) how: String,
    pub(super) by: LossBy,
}

impl Order {
    /// Its rows, the last ones again where it is padded.
    ///
    /// # Errors
    /// [`OpError`] when they do not fit together.
    pub(super) fn batch(&self) -> Result<Batch<'_>, OpError> {
        let rows: usize = self.parts.iter().map(|part| part.rows.len()).sum();
        let last = self.parts.last().filter(|part| !part.rows.is_empty());
        let padding = last.map(|part| (&part.job.batch, part.rows.end - 1..part.rows.end));
        let padding = iter::repeat_n(padding, self.rows.saturating_sub(rows)).flatten();
        let parts = self.parts.iter().map(|part| (&part.job.batch, part.rows.clone()));
        Batch::new(parts.chain(padding).collect())
    }

    /// It, as a lane does it.
    pub(super) fn run<'a>(&'a self, batch: &'a Batch<'a>, reservation: Option<u64>) -> BatchRun<'a> {
        BatchRun {
            stage: &self.stage,
            batch,
            interrupt: &self.interrupt,
            reservation,
        }
    }

    /// Gives each part its rows of what came out; why not, of each.
    pub(super) fn hand_out(&self, output: &Output<'_>) -> Vec<Option<OpError>> {
        let mut from = 0;
        let kept = self.parts.iter().map(|part| {
            let rows = from..from + part.rows.len();
            from = rows.end;
            part.job.keep(output, rows, part.rows.clone()).err()
        });
        kept.collect()
    }

    /// Whose rows they are; `None` where they are of several tenants.
    pub(super) fn tenant(&self) -> Option<Arc<str>> {
        let mut tenants = self.parts.iter().map(|part| &part.job.customer.tenant);
        let first = tenants.next()?;
        tenants.all(|tenant| tenant == first).then(|| Arc::clone(first))
    }

    /// Whether it cannot have fewer rows.
    pub(super) fn is_least(&self) -> bool {
        let fixed = |part: &Part| part.job.customer.terms.terms.fixed_batch.is_some();
        self.rows <= 1 || self.parts.first().is_some_and(fixed)
    }

    /// Whether rows of several submissions are in it.
    pub(super) fn is_joined(&self) -> bool {
        self.parts
            .iter()
            .any(|part| self.parts.first().is_some_and(|first| first.id != part.id))
    }
}

impl Ended {
    /// The run failed before it began.
    pub(super) fn failed(error: OpError) -> Self {
        Self::Ran(RunEnd {
            outcome: Err(error.into()),
            memory: None,
            opened: None,
            time: Duration::ZERO,
        })
    }
}

impl Loss {
    /// Of a process that ended with this status, by nothing that the host did.
    pub(super) fn from_status(status: ExitStatus) -> Self {
        let ended_by = status.signal().and_then(Signal::from_named_raw);
        let by = match ended_by {
            Some(Signal::KILL | Signal::TERM | Signal::INT) => LossBy::Other,
            Some(Signal::ABORT) => LossBy::Itself,
            _ => LossBy::Run,
        };
        let how = match ended_by {
            Some(Signal::SYS) => format!("{status}: it asked the system for what no network needs"),
            _ => status.to_string(),
        };
        Self { how, by }
    }

    /// Nothing ran in it.
    pub(super) fn idle() -> Self {
        Self {
            how: "it ended between two runs".to_owned(),
            by: LossBy::Other,
        }
    }
}
