use crate::Events;
use crate::measure::profiles;
use frostline_client::Hosts;
use frostline_primitives::Backoff;
use frostline_wire::{Profile, ProfileRequest};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

/// Initially unavailable profile of the hosts. It is requested in the background until this value is dropped.
pub(crate) struct AwaitedProfile {
    coming: oneshot::Receiver<Profile>,
    _asking: AbortOnDropHandle<()>,
}

impl AwaitedProfile {
    /// Requests the profile from `hosts` after each of `pauses`.
    pub(crate) fn ask(mut pauses: Backoff, hosts: &Hosts, request: ProfileRequest, events: &Events) -> Self {
        let (sender, coming) = oneshot::channel();
        let hosts = hosts.clone();
        let events = events.clone();
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
            // The job might have ended in the meantime.
            let _ = sender.send(profile);
        });
        Self {
            coming,
            _asking: AbortOnDropHandle::new(asking),
        }
    }

    /// Returns the profile once if it has been received.
    pub(super) fn try_receive(&mut self) -> Option<Profile> {
        self.coming.try_recv().ok()
    }
}

/// Returns true if no requests are queued on any host, so that a profile does not have to wait.
async fn are_free(hosts: &Hosts) -> bool {
    let loads = hosts.all(|client| async move { client.load().await });
    let loads = loads.await;
    loads
        .iter()
        .all(|load| load.as_ref().is_ok_and(|load| load.queued == 0))
}
