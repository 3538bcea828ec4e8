use super::child::ChildLane;
use super::execute::Sessions;
use super::order::{Order, OrderResult};
use super::shared::Shared;
use super::{LanesConfig, LanesPlace};
use crate::EngineError;
use frostline_primitives::Backoff;
use frostline_tensor::Stage;
use std::sync::Arc;
use std::time::Duration;

/// First pause between attempts to start a process. Memory may be available again soon.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause. Submissions wait within their deadline.
const LAST_PAUSE: Duration = Duration::from_secs(10);

/// Executes networks for a lane. When the tenant changes, the lane releases the memory of the last batch, or
/// the whole process with [`Isolation::Tenant`](super::Isolation::Tenant). Otherwise a kernel that leaves
/// parts of the output unwritten could reveal earlier contents.
pub(super) struct Engine {
    place: Backend,
    /// Tenant of the last batch.
    tenant: Option<Arc<str>>,
}

enum Backend {
    InProcess { sessions: Sessions, started: bool },
    Child(ChildLane),
}

impl Engine {
    pub(super) fn new(config: &LanesConfig, index: usize) -> Self {
        let place = match &config.place {
            LanesPlace::InProcess => Backend::InProcess {
                sessions: Sessions::new(config, true),
                started: false,
            },
            LanesPlace::Child(place) => Backend::Child(ChildLane::new(index, Arc::new(place.clone()))),
        };
        Self { place, tenant: None }
    }

    /// Ensures that networks can run. Reports the lane as started once they can.
    pub(super) fn prepare(&mut self, shared: &Shared, index: usize) -> Result<(), EngineError> {
        match &mut self.place {
            Backend::InProcess { started: true, .. } => Ok(()),
            Backend::InProcess { started, .. } => {
                *started = true;
                shared.absent(index);
                shared.update(|state| state.started(index, None, 0));
                Ok(())
            }
            Backend::Child(lane) => lane.prepare(shared),
        }
    }

    /// Repeats [`Engine::prepare`] until success. Returns false if the lanes end before.
    pub(super) fn recover(&mut self, shared: &Shared, index: usize) -> bool {
        let mut backoff = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
        while let Err(error) = self.prepare(shared, index) {
            let pause = backoff.wait();
            tracing::error!(%error, ?pause, "cannot start the lane process, retrying");
            if !shared.pause(pause) {
                return false;
            }
        }
        true
    }

    pub(super) fn run(&mut self, shared: &Shared, index: usize, order: &Order) -> OrderResult {
        let batch = match order.batch() {
            Ok(batch) => batch,
            Err(error) => return OrderResult::failed(error),
        };
        if !self.change_tenant(shared, order) {
            return OrderResult::OutOfBudget;
        }
        match &mut self.place {
            Backend::InProcess { sessions, .. } => {
                order.close.iter().for_each(|stage| sessions.close(stage));
                let run = order.run(&batch, None);
                OrderResult::Ran(
                    sessions.run(&shared.networks, &run, &|| shared.opened(index), |output| {
                        Ok(order.store_output(output))
                    }),
                )
            }
            Backend::Child(lane) => lane.run(shared, order, &batch),
        }
    }

    /// Prepares the engine for the tenant of `order`. Returns false if the batch cannot start.
    fn change_tenant(&mut self, shared: &Shared, order: &Order) -> bool {
        let before = std::mem::replace(&mut self.tenant, order.tenant());
        if before.is_none() || before == self.tenant {
            return true;
        }
        match &mut self.place {
            Backend::InProcess { sessions, .. } => {
                sessions.rest();
                true
            }
            Backend::Child(lane) => lane.change_tenant(shared),
        }
    }

    /// Closes the sessions of `stages`. Returns the held bytes if the system reports them.
    pub(super) fn close(&mut self, stages: &[Stage]) -> Option<u64> {
        match &mut self.place {
            Backend::InProcess { sessions, .. } => {
                stages.iter().for_each(|stage| sessions.close(stage));
                None
            }
            Backend::Child(lane) => lane.close(stages),
        }
    }

    /// Releases the memory that the next batch would reuse. Returns the held bytes if the system reports
    /// them.
    pub(super) fn rest(&mut self) -> Option<u64> {
        match &mut self.place {
            Backend::InProcess { sessions, .. } => {
                sessions.rest();
                None
            }
            Backend::Child(lane) => lane.rest(),
        }
    }
}
