//! Hosts that are being restarted, or have gone, just when they are needed.

use super::Hosts;
use crate::retry::{Attempts, Decision, RetryPolicy, Seen};
use crate::{ClientError, HostState};
use std::time::Duration;

impl Hosts {
    /// Waits after a round in which no host did what it was asked, if one said that it is being stopped, now or in a round before:
    /// whoever stops it will most likely start it again. Also if none answered in this round, but one did before in this job. `seen` is
    /// from before the round.
    pub(super) async fn await_return(
        &self,
        awaited: &mut Option<Attempts>,
        last: Option<ClientError>,
        seen: Seen,
    ) -> Result<(), ClientError> {
        let now = self.seen();
        let gone = |error: &ClientError| {
            error.is_absence() && now.answers == seen.answers && now.answers != self.fleet.before
        };
        let may_return = |error: &ClientError| error.is_stopping() || gone(error);
        if awaited.is_none() && last.as_ref().is_some_and(may_return) {
            *awaited = Some(Attempts::new(RetryPolicy::default(), seen));
        }
        let decision = match (&mut *awaited, &last) {
            (Some(attempts), Some(error)) => attempts.after(error, 0, now),
            _ => Decision::GiveUp,
        };
        match (decision, last) {
            (Decision::Again(wait), Some(error)) => {
                let reason = format!("{error}; retrying in {:.1} s", wait.as_secs_f64());
                let left = awaited.as_ref().and_then(|attempts| attempts.left(now.now));
                self.tell_of(HostState::Down, reason, left);
                tokio::time::sleep(wait).await;
                Ok(())
            }
            (_, last) => Err(self.none_left(last)),
        }
    }

    /// After a wait for a host.
    pub(super) fn is_back(&self, awaited: Option<Attempts>) {
        if awaited.is_some() {
            self.tell_of(HostState::Up, "it answers again".to_owned(), None);
        }
    }

    /// Tells of a host that has no others beside it; of several each tells itself, and the first how much longer all are waited for.
    fn tell_of(&self, state: HostState, reason: String, left: Option<Duration>) {
        match self.fleet.members().as_slice() {
            [only] => only.notify(state, reason, left),
            [first, ..] if left.is_some() => first.notify(state, reason, left),
            _ => {}
        }
    }
}
