//! A lane as the others see it: what it does, and what memory it holds.

use super::order::{Order, Task};
use super::state::Deadline;
use frostline_batching::Reserved;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct Lane {
    /// What its thread is to begin with.
    pub(super) task: Option<Task>,
    pub(super) running: Option<Running>,
    pub(super) busy: Duration,
    pub(super) process: Option<u32>,
    /// Bytes that its process holds between two runs, as far as the system tells.
    pub(super) held: u64,
    /// What is reserved for it: that, and what its run may take.
    pub(super) memory: Option<Reserved>,
    /// What its process holds of the host's memory, where `memory` is of a device's.
    pub(super) beside: Option<Reserved>,
}

pub(super) struct Running {
    pub(super) order: Arc<Order>,
    pub(super) since: Instant,
    pub(super) deadline: Deadline,
    /// Since when its session is open.
    pub(super) opened: Option<Instant>,
}

impl Lane {
    /// Ids of the submissions in its run.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        let parts = self.running.iter().flat_map(|running| &running.order.parts);
        parts.map(|part| part.id)
    }

    /// How long it has worked.
    pub(super) fn busy(&self, now: Instant) -> Duration {
        let running = self.running.as_ref().map(|running| running.since);
        self.busy + running.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Reserves `bytes` beyond what it holds, if they are there.
    pub(super) fn reserve(&mut self, bytes: u64) {
        let held = self.held.saturating_add(bytes);
        if let Some(memory) = &mut self.memory {
            // Where sessions are to be closed before, the lane tries again when they are.
            memory.resize(held).ok();
        }
    }
}
