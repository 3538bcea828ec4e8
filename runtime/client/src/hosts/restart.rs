//! Hosts that are being restarted just when they are needed.

use super::Hosts;
use crate::retry::{Attempts, Decision, RetryPolicy};
use crate::{ClientError, HostState};

impl Hosts {
    /// Waits after a round in which no host did what it was asked, if one said that it is being stopped, now or in a round before:
    /// whoever stops it will most likely start it again.
    pub(super) async fn await_restart(
        &self,
        restart: &mut Option<Attempts>,
        last: Option<ClientError>,
    ) -> Result<(), ClientError> {
        if last.as_ref().is_some_and(ClientError::is_stopping) && restart.is_none() {
            *restart = Some(Attempts::new(RetryPolicy::default()));
        }
        let decision = match (restart, &last) {
            (Some(attempts), Some(error)) => attempts.after(error, 0),
            _ => Decision::GiveUp,
        };
        match (decision, last) {
            (Decision::Again(wait), Some(error)) => {
                let reason = format!("{error}; asking again in {:.1} s", wait.as_secs_f64());
                self.tell_of(HostState::Down, reason);
                tokio::time::sleep(wait).await;
                Ok(())
            }
            (_, last) => Err(self.none_left(last)),
        }
    }

    /// After a wait for a restart.
    pub(super) fn is_back(&self, restart: Option<Attempts>) {
        if restart.is_some() {
            self.tell_of(HostState::Up, "it answers again".to_owned());
        }
    }

    /// Tells of a host that has no others beside it; of several each tells itself.
    fn tell_of(&self, state: HostState, reason: String) {
        if let [only] = self.fleet.members.as_slice() {
            only.tell(state, reason);
        }
    }
}
