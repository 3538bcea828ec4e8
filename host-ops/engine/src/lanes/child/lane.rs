//! Lanes with sessions in child processes.

use super::super::batch::Batch;
use super::super::config::SMALLEST_RUN;
use super::super::order::{Loss, Order, OrderResult};
use super::super::shared::Shared;
use super::super::{ChildLanes, Isolation};
use super::process::{LaneProcess, Lost};
use crate::EngineError;
use frostline_tensor::Stage;
use std::sync::Arc;

/// Assumed memory of an unmeasured process: ONNX Runtime's library with initialized state.
const PROCESS: u64 = 64 << 20;

/// Starts and uses a lane's child process. A missing process is started on demand.
pub(crate) struct ChildLane {
    index: usize,
    place: Arc<ChildLanes>,
    process: Option<LaneProcess>,
    /// Bytes held by the latest process after the start.
    empty: u64,
    /// Tenant and model of the last batch, or `None` if it contained rows of different tenants.
    last: Option<(Arc<str>, String)>,
}

impl ChildLane {
    pub(crate) fn new(index: usize, place: Arc<ChildLanes>) -> Self {
        Self {
            index,
            place,
            process: None,
            empty: PROCESS,
            last: None,
        }
    }

    /// Ensures that a working process exists and fits into the host's memory.
    pub(crate) fn prepare(&mut self, shared: &Shared) -> Result<(), EngineError> {
        if self
            .process
            .as_ref()
            .is_some_and(|process| process.guard.is_alive())
        {
            return Ok(());
        }
        self.discard(shared);
        shared.absent(self.index);
        let id = self.start(shared)?;
        shared.update(|state| state.started(self.index, Some(id), self.empty));
        Ok(())
    }

    /// Clears the state of the previous tenant. Returns false if the next batch cannot start because it
    /// relied on that state or a new process could not be started.
    pub(crate) fn change_tenant(&mut self, shared: &Shared) -> bool {
        if self.place.isolation == Isolation::Shared {
            let held = self.rest();
            shared.holds(self.index, held);
            return true;
        }
        self.discard(shared);
        match self.start(shared) {
            Ok(id) => shared.update(|state| state.replaced(self.index, id, self.empty)),
            // The lane tries again with increasing pauses.
            Err(error) => {
                tracing::warn!(lane = self.index, %error, "cannot start a process for a lane's next tenant");
                false
            }
        }
    }

    /// Ends the process. If it exceeded a limit while it was idle, blames the last network.
    fn discard(&mut self, shared: &Shared) {
        let exceeded = self.process.take().and_then(|process| process.guard.exceeded());
        if let Some((how, (tenant, model))) = exceeded.zip(self.last.take()) {
            shared.blame(&tenant, &model, &how);
        }
    }

    /// Starts a process if it fits into the host's memory. Returns the process id.
    fn start(&mut self, shared: &Shared) -> Result<u32, EngineError> {
        self.book(shared, self.empty)?;
        let mut process = LaneProcess::start(&shared.config, &self.place, &shared.networks.guards)?;
        let held = process
            .rest()
            .map_err(|lost| process.unusable(&self.place, &lost))?;
        // Nothing can be reserved if the system does not report memory.
        self.empty = held.unwrap_or(0);
        self.book(shared, self.empty)?;
        process.limit(held);
        shared.book_host_memory(self.index, process.host);
        let id = process.guard.id();
        self.process = Some(process);
        Ok(id)
    }

    /// Reserves the memory of the process. Fails if the smallest engine batch would not fit in addition.
    fn book(&self, shared: &Shared, process: u64) -> Result<(), EngineError> {
        let least = process.saturating_add(SMALLEST_RUN);
        let booked = shared
            .book(self.index, least)
            .and_then(|()| shared.book(self.index, process));
        booked.map_err(|room| EngineError::Memory { process, least, room })
    }

    /// Releases the memory that the next batch would reuse. Returns the held bytes.
    pub(crate) fn rest(&mut self) -> Option<u64> {
        self.tidy(LaneProcess::rest)
    }

    /// Closes the sessions of `stages`. Returns the held bytes.
    pub(crate) fn close(&mut self, stages: &[Stage]) -> Option<u64> {
        self.tidy(|process| {
            let closed = stages.iter().map(|stage| process.close(stage));
            closed.last().unwrap_or(Ok(None))
        })
    }

    /// Sends a request to the process. If the process is lost, it is replaced before the next batch.
    fn tidy(&mut self, tidy: impl FnOnce(&mut LaneProcess) -> Result<Option<u64>, Lost>) -> Option<u64> {
        let process = self.process.as_mut()?;
        match tidy(process) {
            Ok(held) => {
                process.limit(held);
                held
            }
            // [`ChildLane::prepare`] replaces the process and blames the last network.
            Err(_) if process.guard.exceeded().is_some() => None,
            Err(lost) => {
                let Loss { how, .. } = self.lose(&lost);
                tracing::warn!(lane = self.index, how, "lane process lost");
                None
            }
        }
    }

    /// Executes `order` if its memory can be reserved.
    pub(crate) fn run(&mut self, shared: &Shared, order: &Order, batch: &Batch<'_>) -> OrderResult {
        if !order.close.is_empty() {
            let held = self.close(&order.close);
            shared.holds(self.index, held);
        }
        let held = shared.held(self.index);
        let reserved = held.saturating_add(order.bytes);
        if shared.book(self.index, reserved).is_err() {
            return OrderResult::OutOfBudget;
        }
        let reservation = shared.config.process_ledger().map(|_| order.bytes);
        let Some(process) = &mut self.process else {
            return OrderResult::Lost(Loss::idle());
        };
        if process.guard.exceeded().is_some() {
            // The process was ended while it was idle, so this network is not at fault.
            return OrderResult::OutOfBudget;
        }
        process.limit(Some(reserved));
        self.last = order.tenant().map(|tenant| (tenant, order.stage.model.clone()));
        match process.run(
            &shared.networks,
            &order.run(batch, reservation),
            &|| shared.opened(self.index),
            |output| Ok(order.store_output(output)),
        ) {
            Ok(end) => {
                process.limit(end.memory.map(|memory| memory.held).or(Some(held)));
                shared.book_host_memory(self.index, process.host);
                OrderResult::Ran(end)
            }
            Err(lost) => OrderResult::Lost(self.lose(&lost)),
        }
    }

    /// Removes the lost process and returns the reason.
    fn lose(&mut self, lost: &Lost) -> Loss {
        let process = self.process.take();
        process.map_or_else(Loss::idle, |mut process| process.reap(lost))
    }
}
