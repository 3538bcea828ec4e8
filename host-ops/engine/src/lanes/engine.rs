use super::batch::Output;
use super::child::ChildLane;
use super::execute::Sessions;
use super::order::{Ended, Order};
use super::shared::Shared;
use super::{LanesConfig, LanesPlace};
use crate::EngineError;
use frostline_batching::Backoff;
use frostline_tensor::Stage;
use std::sync::Arc;
use std::time::Duration;

/// Between two attempts to start a process that cannot start, at first: what is short of memory now may not be soon.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// And at last. Submissions wait meanwhile, within their own deadline.
const LAST_PAUSE: Duration = Duration::from_secs(10);

/// What a lane runs networks with. What it keeps for the next run is given up before a run of another tenant, as far as
/// [`Isolation`](super::Isolation) says: a kernel that leaves its output unwritten shows what lay there before.
pub(super) struct Engine {
    place: Place,
    /// Whose run was the last.
    tenant: Option<Arc<str>>,
}

enum Place {
    InProcess { sessions: Sessions, started: bool },
    Child(ChildLane),
}

impl Engine {
    /// For lane `index`.
    pub(super) fn new(config: &LanesConfig, index: usize) -> Self {
        let place = match &config.place {
            LanesPlace::InProcess => Place::InProcess {
                sessions: Sessions::new(config, true),
                started: false,
            },
            LanesPlace::Child(place) => Place::Child(ChildLane::new(index, Arc::new(place.clone()))),
        };
        Self { place, tenant: None }
    }

    /// Makes sure that networks can be run, and says so once they can.
    pub(super) fn prepare(&mut self, shared: &Shared, index: usize) -> Result<(), EngineError> {
        match &mut self.place {
            Place::InProcess { started: true, .. } => Ok(()),
            Place::InProcess { started, .. } => {
                *started = true;
                shared.absent(index);
                shared.started(index, None, 0);
                Ok(())
            }
            Place::Child(lane) => lane.prepare(shared),
        }
    }

    /// [`Engine::prepare`], again and again. `false` when the lanes end before that succeeds.
    pub(super) fn recover(&mut self, shared: &Shared, index: usize) -> bool {
        let mut backoff = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
        while let Err(error) = self.prepare(shared, index) {
            let pause = backoff.wait();
            tracing::error!(%error, ?pause, "cannot start the process of a lane; retrying");
            if !shared.pause(pause) {
                return false;
            }
        }
        true
    }

    /// Does `order` as lane `index`.
    pub(super) fn run(&mut self, shared: &Shared, index: usize, order: &Order) -> Ended {
        let batch = match order.batch() {
            Ok(batch) => batch,
            Err(error) => return Ended::failed(error),
        };
        if !self.change_tenant(shared, order) {
            return Ended::OutOfBudget;
        }
        match &mut self.place {
            Place::InProcess { sessions, .. } => {
                order.close.iter().for_each(|stage| sessions.close(stage));
                let run = order.run(&batch, None);
                let opened = || shared.opened(index);
                let take = |output: &Output<'_>| Ok(order.hand_out(output));
                Ended::Ran(sessions.run(shared.source(), &run, &opened, take))
            }
            Place::Child(lane) => lane.run(shared, order, &batch),
        }
    }

    /// Whether the run can begin.
    fn change_tenant(&mut self, shared: &Shared, order: &Order) -> bool {
        let before = std::mem::replace(&mut self.tenant, order.tenant());
        if before.is_none() || before == self.tenant {
            return true;
        }
        match &mut self.place {
            Place::InProcess { sessions, .. } => {
                sessions.rest();
                true
            }
            Place::Child(lane) => lane.change_tenant(shared),
        }
    }

    /// Closes the sessions of `stages`; the bytes that are held then, if the system tells.
    pub(super) fn close(&mut self, stages: &[Stage]) -> Option<u64> {
        match &mut self.place {
            Place::InProcess { sessions, .. } => {
                stages.iter().for_each(|stage| sessions.close(stage));
                None
            }
            Place::Child(lane) => lane.close(stages),
        }
    }

    /// Gives memory back that only the next run would need; the bytes that are held then, if the system tells.
    pub(super) fn rest(&mut self) -> Option<u64> {
        match &mut self.place {
            Place::InProcess { sessions, .. } => {
                sessions.rest();
                None
            }
            Place::Child(lane) => lane.rest(),
        }
    }
}
