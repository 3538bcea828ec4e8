use crate::Events;
use crate::measure::profiles;
use frostline_batching::Backoff;
use frostline_client::Hosts;
use frostline_wire::{Profile, ProfileRequest};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

/// Between two attempts to have a profile beside a running job: a host that was too busy will not be idle within seconds, and what
/// the job takes more until then is little beside what a profile takes from its neighbors.
const FIRST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(600);

/// A profile that was unavailable when the job started, and is requested again in the background. Stops on drop.
pub(crate) struct AwaitedProfile {
    coming: oneshot::Receiver<Profile>,
    _asking: AbortOnDropHandle<()>,
}

impl AwaitedProfile {
    /// Asks `hosts` again and again, now and then.
    pub(crate) fn ask(hosts: &Hosts, request: ProfileRequest, events: &Events) -> Self {
        Self::ask_after(Backoff::new(FIRST, LONGEST), hosts, request, events)
    }

    /// [`AwaitedProfile::ask`] with these pauses.
    pub(crate) fn ask_after(
        mut pauses: Backoff,
        hosts: &Hosts,
        request: ProfileRequest,
        events: &Events,
    ) -> Self {
        let (sender, coming) = oneshot::channel();
        let (hosts, events) = (hosts.clone(), events.clone());
        let asking = tokio::spawn(async move {
            let profile = loop {
                tokio::time::sleep(pauses.wait()).await;
                if !are_free(&hosts).await {
                    continue;
                }
                if let (Some(profile), _) = profiles(&hosts, &request, &events).await {
                    break profile;
                }
            };
            // A job that has ended meanwhile needs none.
            let _ = sender.send(profile);
        });
        Self {
            coming,
            _asking: AbortOnDropHandle::new(asking),
        }
    }

    /// The profile, once.
    pub(super) fn came(&mut self) -> Option<Profile> {
        self.coming.try_recv().ok()
    }
}

/// Whether nobody waits at any host, so that a profile would not wait either.
async fn are_free(hosts: &Hosts) -> bool {
    let loads = hosts.all(|client| async move { client.load().await });
    let loads = loads.await;
    loads
        .iter()
        .all(|load| load.as_ref().is_ok_and(|load| load.queued == 0))
}
