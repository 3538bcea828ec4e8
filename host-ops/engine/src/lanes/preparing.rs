//! Preparations of stages, which precede the first session and need no lane.

use crate::{Interrupt, InterruptCause};
use frostline_tensor::Stage;
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Preparing {
    pub(super) task: PreparationTask,
    pub(super) since: Instant,
    /// True if a thread has started the preparation.
    taken: bool,
}

/// Preparation for a thread.
#[derive(Clone)]
pub(super) struct PreparationTask {
    pub(super) stage: Stage,
    /// Tenant charged for the time and the memory.
    pub(super) tenant: Arc<str>,
    pub(super) interrupt: Interrupt,
}

/// Preparations in progress, by slot of the device.
pub(super) struct Preparations(Vec<Option<Preparing>>);

impl Preparations {
    pub(super) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| None).collect())
    }

    /// Returns the maximum number of concurrent preparations.
    pub(super) fn slots(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, slot: usize) -> Option<&Preparing> {
        self.0.get(slot)?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Preparing> {
        self.0.iter().flatten()
    }

    pub(super) fn start(&mut self, slot: usize, stage: Stage, tenant: Arc<str>, now: Instant) {
        if let Some(place) = self.0.get_mut(slot) {
            let interrupt = Interrupt::new();
            *place = Some(Preparing {
                task: PreparationTask {
                    stage,
                    tenant,
                    interrupt,
                },
                since: now,
                taken: false,
            });
        }
    }

    /// Returns the stage to prepare as `slot`, once.
    pub(super) fn take_task(&mut self, slot: usize) -> Option<PreparationTask> {
        let preparing = self.0.get_mut(slot)?.as_mut()?;
        let new = !std::mem::replace(&mut preparing.taken, true);
        new.then(|| preparing.task.clone())
    }

    /// Ends a preparation. Its process is disposable, so it has no time to stop.
    pub(super) fn stop(&self, slot: usize, cause: InterruptCause) {
        if let Some(preparing) = self.get(slot) {
            preparing.task.interrupt.trigger(cause);
            preparing.task.interrupt.give_up();
        }
    }

    /// Removes and returns a preparation that ended.
    pub(super) fn end(&mut self, slot: usize) -> Option<PreparationTask> {
        Some(self.0.get_mut(slot)?.take()?.task)
    }
}
