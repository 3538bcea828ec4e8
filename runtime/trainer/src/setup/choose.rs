//! Chooses the split and starts the watch for later changes.

use super::context::Setup;
use super::prepared::Prepared;
use super::provide::{FrozenLayers, ProvidedSetup};
use crate::offer::Offer;
use crate::replan::{AwaitedProfile, Watch};
use crate::{Event, Policy, ProfileState, TrainerError};
use frostline_client::ClientError;
use frostline_plan::{ChosenSplit, LayersLocation, Planner};
use frostline_primitives::Backoff;
use frostline_wire::ErrorClass;
use std::time::Duration;

/// Initial delay between attempts to get a profile while the job runs. A busy host does not become idle
/// within seconds, and a profile can slow down other tenants more than a bad split slows down the job.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A split, with a watch if the planner chose it.
type WatchedSplit = (ChosenSplit, Option<Watch>);

impl ProvidedSetup<'_> {
    /// Chooses the split, the last phase of the setup.
    ///
    /// # Errors
    /// Returns [`TrainerError::Plan`] if no split fits the policy, [`TrainerError::Memory`] if no split
    /// fits the memory, and other errors of planning and of the feature cache.
    pub(super) async fn choose(mut self) -> Result<Prepared, TrainerError> {
        let pushes = matches!(self.frozen, FrozenLayers::OnHosts(_));
        let watched = match self.frozen {
            FrozenLayers::RunLocally(why) => (self.offer.without_layers(&why)?, None),
            FrozenLayers::OnTrainer(planner) => self.setup.watched(*planner)?,
            FrozenLayers::OnHosts(layers) => match &self.setup.job.spec.split {
                Policy::Fixed(split) if !self.setup.measure => (self.offer.fixed(split)?, None),
                _ => self.setup.plan(&self.offer, layers).await?,
            },
        };
        let chosen = &watched.0;
        self.setup.open_features(chosen.encoding, &chosen.split).await?;
        Ok(Prepared::new(self.setup, self.offer, pushes, watched))
    }
}

impl Setup<'_> {
    /// Plans a split by the job's policy. Without a profile from the hosts, the job starts at the split with
    /// the fewest bytes and assumes that the hosts are as fast as this machine until it observes them. If
    /// nothing can be measured, the split is chosen by bytes and never reconsidered.
    async fn plan(&self, offer: &Offer, layers: LayersLocation) -> Result<WatchedSplit, TrainerError> {
        let policy = &self.job.spec.split;
        let splits = self.fitting(offer)?;
        let (Some(on_hosts), Some(_)) = (&offer.on_hosts, offer.pixels()) else {
            let why = "cannot measure, because only the guest can make the network's input";
            return Ok((offer.by_bytes(policy, &splits, why)?, None));
        };
        let splits = self.worthwhile(splits)?;
        let request = self.profile_request(on_hosts, &splits);
        let measured = match self.measure(&splits, &request).await {
            Ok(measured) => measured,
            Err(unmeasured) => {
                let why = unmeasured.reason()?;
                return Ok((offer.by_bytes(policy, &splits, &why)?, None));
            }
        };
        let planner = Planner {
            layers,
            ..measured.planner
        };
        let Some(error) = measured.profile_errors.first() else {
            return self.watched(planner);
        };
        if measured.has_profile {
            self.tell_missing(format!("{error}; assuming the speed of the slowest other host"));
            return self.watched(planner);
        }
        if refuses_layers(error) && self.needs_no_host() {
            return Ok((offer.without_layers(&error.to_string())?, None));
        }
        let again = measured.profile_errors.iter().all(ClientError::may_pass_later);
        let pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let awaited = again.then(|| AwaitedProfile::ask(pauses, &self.measuring, request, self.events));
        self.start_unprofiled(offer, planner, error, awaited)
    }

    /// Returns the planner's choice with a watch.
    fn watched(&self, planner: Planner) -> Result<WatchedSplit, TrainerError> {
        let (first, chosen) = planner.choose()?;
        Ok((chosen, Some(Watch::new(planner, first, self.events))))
    }

    /// Chooses the split with the fewest bytes because of `error`. Until the profile arrives, the watch
    /// assumes that the hosts are like this machine.
    fn start_unprofiled(
        &self,
        offer: &Offer,
        planner: Planner,
        error: &ClientError,
        awaited: Option<AwaitedProfile>,
    ) -> Result<WatchedSplit, TrainerError> {
        let then = if awaited.is_some() { "; retrying" } else { "" };
        self.tell_missing(format!(
            "no profile from the hosts: {error}; starting at the smallest cut, measuring during the job{then}"
        ));
        let why = format!("no profile from the hosts: {error}");
        let chosen = offer.by_bytes(&self.job.spec.split, &planner.splits, &why)?;
        let Some(first) = planner.candidate(&chosen.split) else {
            return Ok((chosen, None));
        };
        let chosen = planner.chosen(&first, chosen.reason);
        let mut watch = Watch::new(planner, first, self.events);
        (watch.awaited, watch.guessed) = (awaited, true);
        Ok((chosen, Some(watch)))
    }

    fn tell_missing(&self, reason: String) {
        (self.events)(Event::Profile {
            state: ProfileState::Missing,
            reason,
        });
    }
}

/// Returns true if a host permanently refuses these layers.
fn refuses_layers(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Refused {
            class: ErrorClass::TooLarge | ErrorClass::Guest,
            ..
        }
    )
}
