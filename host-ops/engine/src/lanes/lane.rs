//! Lane state: task and memory.

use super::order::{Order, Task};
use crate::InterruptCause;
use frostline_batching::Reserved;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct Lane {
    /// Task that the lane's thread has not taken yet.
    pub(super) task: Option<Task>,
    pub(super) running: Option<Running>,
    pub(super) busy: Duration,
    pub(super) process: Option<u32>,
    /// Bytes that the process holds between batches, if the system reports them.
    pub(super) held: u64,
    /// Reservation for the held bytes and the current batch.
    pub(super) memory: Option<Reserved>,
    /// Reservation in the host's ledger, if `memory` belongs to a device.
    pub(super) host_memory: Option<Reserved>,
}

pub(super) struct Running {
    pub(super) order: Arc<Order>,
    pub(super) since: Instant,
    pub(super) deadline: Deadline,
    pub(super) stop: Option<Stop>,
}

/// Deadline of work, and the cause to report on expiry.
#[derive(Clone)]
pub(super) struct Deadline {
    pub(super) until: Instant,
    pub(super) late: InterruptCause,
}

/// Request to end a batch.
pub(super) struct Stop {
    pub(super) cause: InterruptCause,
    pub(super) at: Instant,
    /// True after the process was given up, because the batch did not stop in time.
    pub(super) given_up: bool,
    /// True if another tenant was waiting when the process was given up.
    pub(super) contended: bool,
}

impl Lane {
    /// Returns the ids of all submissions with rows in the current batch.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        let parts = self.running.iter().flat_map(|running| &running.order.parts);
        parts.map(|part| part.id)
    }

    /// Returns the total working time, with the current batch.
    pub(super) fn busy(&self, now: Instant) -> Duration {
        let running = self.running.as_ref().map(|running| running.since);
        self.busy + running.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Reserves `bytes` in addition to the held bytes, if they are free.
    pub(super) fn reserve(&mut self, bytes: u64) {
        let held = self.held.saturating_add(bytes);
        if let Some(memory) = &mut self.memory {
            // If this fails because sessions must be closed first, the lane tries again after closing them.
            memory.resize(held).ok();
        }
    }
}
