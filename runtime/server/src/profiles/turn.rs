//! Who measures next.

use crate::caller::Caller;
use crate::refusal::Refusal;
use crate::scheduling::{Admission, Permit, Standing};
use std::time::Duration;
use tokio::sync::MutexGuard;

/// The right to measure, which one request at a time has. Who waits for it has a running place already, so it never waits for somebody
/// else's extractions; and since of each tenant one request waits for it, tenants take turns.
pub(super) struct Turn<'a> {
    // They end in this order: the next one measures, then places come free.
    _measuring: MutexGuard<'a, ()>,
    _permit: Permit,
    _line: Permit,
    admission: &'a Admission,
    /// How many had asked for a place when it began, where nobody else was at work.
    alone: Option<u64>,
}

impl<'a> Turn<'a> {
    /// Waits for it; dropping the future gives it up.
    ///
    /// # Errors
    /// As [`Admission::enter`].
    pub(super) async fn wait(caller: &'a Caller) -> Result<Self, Refusal> {
        let tenant = caller.tenant();
        let places = tenant.allowed.places();
        let one = Standing { running: 1, ..places };
        let line = caller.profile_lines.enter(&tenant.name, one).await?;
        let permit = caller.admission.enter(&tenant.name, places).await?;
        let measuring = caller.profiling.lock().await;
        let admission = &caller.admission;
        Ok(Self {
            _measuring: measuring,
            _permit: permit,
            _line: line,
            admission,
            alone: (admission.running() <= 1).then(|| admission.asked()),
        })
    }

    /// What is said to who would not wait longer.
    pub(super) fn too_late(caller: &Caller, waited: Duration) -> Refusal {
        let message = format!(
            "this host was busy for {} s and has not begun to measure; come back later, or begin without a profile",
            waited.as_secs()
        );
        Refusal::busy(message, caller.profile_lines.retry())
    }

    /// Whether anything else ran, or wanted to, since it began.
    pub(super) fn disturbed(&self) -> bool {
        self.alone != Some(self.admission.asked())
    }
}
