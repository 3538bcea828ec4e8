//! A lane whose sessions live in a process of their own.

use super::super::ChildLanes;
use super::super::execute::describe;
use super::super::shared::{Job, Outcome, Shared};
use super::process::{LaneProcess, Lost, about};
use super::quarantine::Quarantined;
use crate::{EngineError, InterruptCause};
use frostline_tensor::OpError;
use std::sync::Arc;

/// How often a job is tried: again once when the process crashed, as the next process may well run it.
const ATTEMPTS: usize = 2;

/// The lane's side. It starts a process where there is none.
pub(in crate::lanes) struct ChildLane {
    index: usize,
    place: Arc<ChildLanes>,
    process: Option<LaneProcess>,
}

impl ChildLane {
    pub(in crate::lanes) fn new(index: usize, place: Arc<ChildLanes>) -> Self {
        Self {
            index,
            place,
            process: None,
        }
    }

    /// Makes sure that there is a process that can work.
    pub(in crate::lanes) fn prepare(&mut self, shared: &Shared) -> Result<(), EngineError> {
        self.process(shared)?;
        Ok(())
    }

    /// Keeps no memory for the next job: none comes for now.
    pub(in crate::lanes) fn rest(&mut self) {
        if let Some(process) = &mut self.process {
            process.rest();
        }
    }

    /// Runs `job`, on another process when it crashes the first.
    pub(in crate::lanes) fn execute(&mut self, shared: &Shared, job: &Job) -> Outcome {
        let index = self.index;
        for _ in 0..ATTEMPTS {
            if let Some(case) = shared.quarantined(job) {
                return Err(refuse(job, &case));
            }
            shared.opening(index);
            let process = self.process(shared).map_err(|error| about(job, &error))?;
            match process.run(shared.source(), job, &|| shared.opened(index)) {
                Ok(outcome) => return outcome,
                Err(lost) => self.lose(shared, job, &lost)?,
            }
        }
        match shared.quarantined(job) {
            Some(case) => Err(refuse(job, &case)),
            None => Err(OpError::runtime(format!(
                "{}: the engine's process was lost twice; try again",
                describe(&job.stage)
            ))),
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

    /// Clears away a process that was lost with `job`.
    ///
    /// # Errors
    /// When the job must not be tried again, as it was to end anyway.
    fn lose(&mut self, shared: &Shared, job: &Job, lost: &Lost) -> Result<(), OpError> {
        let how = match self.process.take() {
            Some(mut process) => process.bury(lost),
            None => String::new(),
        };
        shared.set_process(self.index, None);
        let cause = job.interrupt.cause();
        // A client that leaves, or a host that ends, says nothing about the model.
        let blameless = matches!(cause, Some(InterruptCause::Cancelled | InterruptCause::Shutdown));
        if !blameless {
            let stage = describe(&job.stage);
            tracing::error!(lane = self.index, tenant = %job.tenant, stage, how, "a lane's process was lost");
            shared.note_crash(job, &how);
        }
        match cause {
            Some(cause) => Err(about(job, &EngineError::Interrupted { cause })),
            None => Ok(()),
        }
    }
}

fn refuse(job: &Job, case: &Quarantined) -> OpError {
    let minutes = case.left.as_secs().div_ceil(60);
    OpError::runtime(format!(
        "{}: this model crashed the engine {} times (the last time: {}) and is not run again for {minutes} minutes; run \
         it with ONNX Runtime on a machine of your own to find the layer or the data at fault",
        describe(&job.stage),
        case.crashes,
        case.how
    ))
}
