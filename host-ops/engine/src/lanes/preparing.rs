//! Preparations of stages, which precede the first session and need no lane.

use super::state::{Phase, State};
use crate::{Interrupt, InterruptCause};
use frostline_tensor::Stage;
use std::sync::Arc;
use std::time::Instant;

/// A preparation in progress.
pub(super) struct Preparing {
    pub(super) stage: Stage,
    /// The tenant that is charged.
    pub(super) tenant: Arc<str>,
    pub(super) since: Instant,
    pub(super) interrupt: Interrupt,
    /// True if a thread has started the preparation.
    taken: bool,
}

/// Preparation for a thread.
pub(super) struct PreparationTask {
    pub(super) stage: Stage,
    /// Tenant charged for the time and the memory.
    pub(super) tenant: Arc<str>,
    pub(super) interrupt: Interrupt,
}

impl State {
    pub(super) fn start_preparation(&mut self, slot: usize, stage: Stage, tenant: Arc<str>, now: Instant) {
        if let Some(place) = self.preparing.get_mut(slot) {
            *place = Some(Preparing {
                stage,
                tenant,
                since: now,
                interrupt: Interrupt::new(),
                taken: false,
            });
        }
    }

    /// Returns the stage to prepare as `slot`, once.
    pub(super) fn take_preparation(&mut self, slot: usize) -> Option<PreparationTask> {
        let preparing = self.preparing.get_mut(slot)?.as_mut()?;
        let new = !std::mem::replace(&mut preparing.taken, true);
        new.then(|| PreparationTask {
            stage: preparing.stage.clone(),
            tenant: Arc::clone(&preparing.tenant),
            interrupt: preparing.interrupt.clone(),
        })
    }

    /// Ends a preparation. Its process is disposable, so it has no time to stop.
    pub(super) fn stop_preparation(&mut self, slot: usize, cause: InterruptCause) {
        if let Some(preparing) = self.preparing.get(slot).and_then(Option::as_ref) {
            preparing.interrupt.trigger(cause);
            preparing.interrupt.give_up();
        }
    }

    /// Records the end of a preparation, for any reason. The time for which its submissions wait for a lane
    /// begins now.
    pub(super) fn prepared(&mut self, slot: usize, now: Instant) -> Option<Preparing> {
        let ended = self.preparing.get_mut(slot)?.take()?;
        let cause = ended.interrupt.cause();
        self.device
            .prepared(self.time(now), slot, cause != Some(InterruptCause::Cancelled));
        for entry in self.entries.values_mut() {
            if entry.job.stage == ended.stage {
                entry.until = now + self.queue_deadline;
            }
        }
        Some(ended)
    }

    /// Returns true if no more preparations will follow.
    pub(super) fn is_over(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Draining => !self.is_working(),
            Phase::Ended => true,
        }
    }
}
