//! Preparations of stages, which precede the first session and need no lane.

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
    pub(super) fn take_task(&mut self, slot: usize) -> Option<PreparationTask> {
        let preparing = self.0.get_mut(slot)?.as_mut()?;
        let new = !std::mem::replace(&mut preparing.taken, true);
        new.then(|| PreparationTask {
            stage: preparing.stage.clone(),
            tenant: Arc::clone(&preparing.tenant),
            interrupt: preparing.interrupt.clone(),
        })
    }

    /// Ends a preparation. Its process is disposable, so it has no time to stop.
    pub(super) fn stop(&self, slot: usize, cause: InterruptCause) {
        if let Some(preparing) = self.get(slot) {
            preparing.interrupt.trigger(cause);
            preparing.interrupt.give_up();
        }
    }

    /// Removes and returns a preparation that ended.
    pub(super) fn end(&mut self, slot: usize) -> Option<Preparing> {
        self.0.get_mut(slot)?.take()
    }
}
