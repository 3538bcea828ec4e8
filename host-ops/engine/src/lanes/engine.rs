use super::batch::{Batch, BatchRun, RunError};
use super::child::ChildLane;
use super::execute::Sessions;
use super::run::{Outcome, Submission};
use super::shared::Shared;
use super::{LanesConfig, LanesPlace};
use crate::EngineError;
use frostline_batching::Backoff;
use std::sync::Arc;
use std::time::Duration;

/// Between two attempts to start a process that cannot start, at first: what is short of memory now may not be soon.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// And at last. Submissions wait meanwhile, within their own deadline.
const LAST_PAUSE: Duration = Duration::from_secs(10);

/// What a lane runs networks with.
pub(super) enum Engine {
    InProcess(Sessions),
    Child(ChildLane),
}

impl Engine {
    /// For lane `index`.
    pub(super) fn new(config: &LanesConfig, index: usize) -> Self {
        match &config.place {
            LanesPlace::InProcess => Self::InProcess(Sessions::new(config, true)),
            LanesPlace::Child(place) => Self::Child(ChildLane::new(index, Arc::new(place.clone()))),
        }
    }

    /// Makes sure that networks can be run.
    pub(super) fn prepare(&mut self, shared: &Shared) -> Result<(), EngineError> {
        match self {
            Self::InProcess(_) => Ok(()),
            Self::Child(lane) => lane.prepare(shared),
        }
    }

    /// [`Engine::prepare`], again and again. `false` when the lanes end before that succeeds.
    pub(super) fn recover(&mut self, shared: &Shared) -> bool {
        let mut backoff = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
        while let Err(error) = self.prepare(shared) {
            let pause = backoff.wait();
            tracing::error!(%error, ?pause, "a lane has no process, it tries again");
            if !shared.pause(pause) {
                return false;
            }
        }
        true
    }

    /// Gives memory back that only the next run would need: none comes for now.
    pub(super) fn rest(&mut self) {
        match self {
            Self::InProcess(sessions) => sessions.rest(),
            Self::Child(lane) => lane.rest(),
        }
    }

    /// Runs `submission` as lane `index`.
    pub(super) fn execute(&mut self, shared: &Shared, index: usize, submission: &Submission) -> Outcome {
        match self {
            Self::InProcess(sessions) => {
                let run = &submission.run;
                let batch = Batch::new(vec![(&run.batch, 0..run.batch.rows()?)])?;
                let run = BatchRun {
                    stage: &run.stage,
                    batch: &batch,
                    interrupt: &run.interrupt,
                    reservation: None,
                };
                let opened = || shared.opened(index);
                let end = sessions.run(shared.source(), &run, &opened, |output| output.whole());
                end.outcome.map_err(RunError::into_told)
            }
            Self::Child(lane) => lane.execute(shared, submission),
        }
    }
}
