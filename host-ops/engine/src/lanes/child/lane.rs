//! A lane whose sessions live in a process of their own.

use super::super::ChildLanes;
use super::super::batch::{Batch, BatchRun, RunError};
use super::super::quarantine::Quarantined;
use super::super::run::{Outcome, Submission, about, describe};
use super::super::shared::Shared;
use super::process::{LaneProcess, Lost};
use crate::{EngineError, InterruptCause};
use frostline_tensor::{OpError, OpErrorCode, Stage};
use std::sync::Arc;

/// How often a submission is tried: again once when the process crashed, as the next process may well run it.
const ATTEMPTS: usize = 2;

/// The lane's side. It starts a process where there is none.
pub(crate) struct ChildLane {
    index: usize,
    place: Arc<ChildLanes>,
    process: Option<LaneProcess>,
}

impl ChildLane {
    pub(crate) fn new(index: usize, place: Arc<ChildLanes>) -> Self {
        Self {
            index,
            place,
            process: None,
        }
    }

    /// Makes sure that there is a process that can work.
    pub(crate) fn prepare(&mut self, shared: &Shared) -> Result<(), EngineError> {
        self.process(shared)?;
        Ok(())
    }

    /// Keeps no memory for the next run: none comes for now.
    pub(crate) fn rest(&mut self) {
        // One that is lost is replaced for the next run.
        if let Some(process) = &mut self.process
            && let Err(lost) = process.rest()
        {
            tracing::warn!(
                lane = self.index,
                how = process.bury(&lost),
                "a lane's process was lost"
            );
        }
    }

    /// Runs `submission`, on another process when it crashes the first.
    pub(crate) fn execute(&mut self, shared: &Shared, submission: &Submission) -> Outcome {
        let (index, run) = (self.index, &submission.run);
        let batch = Batch::new(vec![(&run.batch, 0..run.batch.rows()?)])?;
        let batch_run = BatchRun {
            stage: &run.stage,
            batch: &batch,
            interrupt: &run.interrupt,
            reservation: None,
        };
        for _ in 0..ATTEMPTS {
            if let Some(case) = shared.quarantined(submission) {
                return Err(refuse(&run.stage, &case));
            }
            shared.opening(index);
            let process = self.process(shared).map_err(|error| about(&run.stage, &error))?;
            let opened = || shared.opened(index);
            match process.run(shared.source(), &batch_run, &opened, |output| output.whole()) {
                Ok(end) => return end.outcome.map_err(RunError::into_told),
                Err(lost) => self.lose(shared, submission, &lost)?,
            }
        }
        match shared.quarantined(submission) {
            Some(case) => Err(refuse(&run.stage, &case)),
            None => Err(OpError::of_host(
                OpErrorCode::RuntimeError,
                format!(
                    "{}: the engine's process was lost twice; try again",
                    describe(&run.stage)
                ),
            )),
        }
    }

    fn process(&mut self, shared: &Shared) -> Result<&mut LaneProcess, EngineError> {
        let alive = self
            .process
            .take()
            .and_then(|mut process| process.is_alive().then_some(process));
        let process = match alive {
            Some(process) => process,
            None => LaneProcess::start(shared.config(), &self.place)?,
        };
        shared.set_process(self.index, Some(process.id()));
        Ok(self.process.insert(process))
    }

    /// Clears away a process that was lost with `submission`.
    ///
    /// # Errors
    /// When it must not be tried again, as it was to end anyway.
    fn lose(&mut self, shared: &Shared, submission: &Submission, lost: &Lost) -> Result<(), OpError> {
        let how = match self.process.take() {
            Some(mut process) => process.bury(lost),
            None => String::new(),
        };
        shared.set_process(self.index, None);
        let run = &submission.run;
        let cause = run.interrupt.cause();
        // A client that leaves, or a host that ends, says nothing about the model.
        let blameless = matches!(cause, Some(InterruptCause::Cancelled | InterruptCause::Shutdown));
        if !blameless {
            let stage = describe(&run.stage);
            tracing::error!(lane = self.index, tenant = %submission.customer.tenant, stage, how, "a lane's process was lost");
            shared.note_crash(submission, &how);
        }
        match cause {
            Some(cause) => Err(about(&run.stage, &cause.into())),
            None => Ok(()),
        }
    }
}

fn refuse(stage: &Stage, case: &Quarantined) -> OpError {
    let minutes = case.left.as_secs().div_ceil(60);
    OpError::runtime(format!(
        "{}: this model crashed the engine {} times (the last time: {}) and is not run again for {minutes} minutes; run \
         it with ONNX Runtime on a machine of your own to find the layer or the data at fault",
        describe(stage),
        case.crashes,
        case.how
    ))
}
