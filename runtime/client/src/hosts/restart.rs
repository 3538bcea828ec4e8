//! Waits for restarting or unavailable hosts.

use super::Hosts;
use crate::retry::{Attempts, HostActivity, Retry, RetryPolicy};
use crate::{ClientError, HostState};
use std::time::Duration;

impl Hosts {
    /// Waits after an unsuccessful round if retrying may help. This is the case if a host reported that it is
    /// draining, now or in an earlier round, because it is most likely being restarted. It is also the case
    /// if no host answered in this round, but one answered this job before. `seen` is the host activity
    /// before the round.
    pub(super) async fn await_return(
        &self,
        awaited: &mut Option<Attempts>,
        last: Option<ClientError>,
        seen: HostActivity,
    ) -> Result<(), ClientError> {
        let now = self.seen();
        let gone = |error: &ClientError| {
            error.indicates_outage() && now.answers == seen.answers && now.answers != self.fleet.before
        };
        if awaited.is_none()
            && last
                .as_ref()
                .is_some_and(|error| error.is_stopping() || gone(error))
        {
            *awaited = Some(Attempts::new(RetryPolicy::default(), seen));
        }
        let decision = match (&mut *awaited, &last) {
            (Some(attempts), Some(error)) => attempts.after(error, 0, now),
            _ => Retry::GiveUp,
        };
        match (decision, last) {
            (Retry::Again(wait), Some(error)) => {
                let reason = format!("{error}; retrying in {:.1} s", wait.as_secs_f64());
                let left = awaited
                    .as_ref()
                    .and_then(|attempts| attempts.outage_time_left(now.observed));
                self.tell_of(HostState::Down, reason, left);
                tokio::time::sleep(wait).await;
                Ok(())
            }
            (_, last) => Err(self.none_left(last)),
        }
    }

    /// Reports the end of a wait for a host.
    pub(super) fn is_back(&self, awaited: Option<Attempts>) {
        if awaited.is_some() {
            self.tell_of(HostState::Up, "it answers again".to_owned(), None);
        }
    }

    /// Reports the state of a single host. Multiple hosts report themselves. In that case, only the remaining
    /// time of an outage is reported here, for the first host.
    fn tell_of(&self, state: HostState, reason: String, left: Option<Duration>) {
        match self.fleet.members().as_slice() {
            [only] => only.notify(state, reason, left),
            [first, ..] if left.is_some() => first.notify(state, reason, left),
            _ => {}
        }
    }
}
