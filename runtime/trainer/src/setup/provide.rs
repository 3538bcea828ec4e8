//! The hosts are given what the job needs there.

use super::context::Setup;
use super::layers::WithoutLayers;
use crate::compute::blocking;
use crate::offer::Offer;
use crate::plan::{Layers, Planner};
use crate::upload::{OnHosts, Upload};
use crate::{Policy, TrainerError, notes};
use frostline_client::ClientError;
use frostline_graph::ModelLimits;
use frostline_wire::{Description, ErrorClass, Split};

/// A job whose guest and layers are on the hosts.
pub(super) struct ProvidedSetup<'a> {
    pub(super) setup: Setup<'a>,
    pub(super) offer: Offer,
    pub(super) frozen: FrozenLayers,
}

/// What became of the frozen layers.
pub(super) enum FrozenLayers {
    /// The hosts have them, or need none.
    OnHosts(Layers),
    /// They stay here, by this planner.
    OnTrainer(Box<Planner>),
    /// They run here without a plan, for this reason.
    Unused(String),
}

impl<'a> Setup<'a> {
    /// Has the hosts take what the job needs there.
    pub(super) async fn provide_layers(mut self) -> Result<ProvidedSetup<'a>, TrainerError> {
        let sent = match self.reason_to_stay().await? {
            Some(why) => Ok(self.unused(why)),
            None => self.send_layers().await,
        };
        let (offer, frozen) = match sent {
            Err(error) if self.needs_no_host() && are_refused(&error) => self.unused(error.to_string()),
            sent => sent?,
        };
        if !self.job.spec.recipe.augmentation().is_none() && !offer.description.augments {
            let Description { name, version, .. } = &offer.description;
            let guest = format!("{name} {version}");
            return Err(TrainerError::CannotAugment { guest });
        }
        if let Some(spec) = offer.pixels() {
            notes::check(&spec, &offer.network)?;
        }
        Ok(ProvidedSetup {
            setup: self,
            offer,
            frozen,
        })
    }

    /// Why the frozen layers run here without measuring: the host in this process has the same cores and no link, so that measuring takes
    /// longer than any split saves; or no host takes them.
    async fn reason_to_stay(&self) -> Result<Option<String>, TrainerError> {
        let job = self.job;
        if !self.needs_no_host() {
            return Ok(None);
        }
        if job.shared_cores && !self.measure && job.spec.link_bytes_per_second.is_none() {
            return Ok(Some(
                "the host shares its cores, so that no split is faster".to_owned(),
            ));
        }
        if self.network.nothing_is_frozen(&job.freeze) {
            return Ok(None);
        }
        let frozen = self.network.frozen.clone();
        let freeze = self.network.network.cut(&job.freeze)?.clone();
        let refused = blocking(move || Ok(frozen.refused(&[freeze], &ModelLimits::default())));
        Ok(refused.await?.map(|refused| refused.why.to_string()))
    }

    /// What there is to choose from where hosts do not run the frozen layers.
    fn unused(&self, why: String) -> (Offer, FrozenLayers) {
        (self.stock_offer(None), FrozenLayers::Unused(why))
    }

    /// Sends guest and frozen layers, as far as they are needed and worth it. With the split `none` and the stock guest there is nothing to
    /// send.
    async fn send_layers(&mut self) -> Result<(Offer, FrozenLayers), TrainerError> {
        let job = self.job;
        if job.spec.split == Policy::Fixed(Split::None) && job.guest.is_stock() && !self.measure {
            return Ok((self.stock_offer(None), FrozenLayers::OnHosts(Layers::default())));
        }
        let layers = self.frozen_layers().await?;
        let layers = match self.network.int8 {
            None => layers.or_within(job, &self.measuring).await,
            Some(_) => layers,
        };
        if job.spec.split == Policy::Auto
            && job.guest.is_stock()
            && let Some(without) = self.assess(&layers).await?
        {
            return self.without_layers(without).await;
        }
        self.serve(&layers).await
    }

    /// Uploads guest and frozen layers and asks the guest what it does.
    async fn serve(&self, layers: &Upload) -> Result<(Offer, FrozenLayers), TrainerError> {
        let (on_hosts, layers) = self.send(layers).await?;
        let offer = match on_hosts.describe(&self.network.parameters, self.hosts).await {
            // Of the stock guest it is known what it says, so nobody need wait for it behind others.
            Err(TrainerError::Client(error)) if self.job.guest.is_stock() && error.may_pass_later() => {
                self.stock_offer(Some(on_hosts))
            }
            described => self.offer(Some(on_hosts), described?),
        };
        Ok((offer, FrozenLayers::OnHosts(layers)))
    }

    /// Uploads what a plan without the frozen layers needs.
    async fn without_layers(&self, without: WithoutLayers) -> Result<(Offer, FrozenLayers), TrainerError> {
        let on_hosts = match &without.first {
            Some(first) => Some(self.send(first).await?.0),
            None => None,
        };
        let kept = FrozenLayers::OnTrainer(without.planner);
        Ok((self.stock_offer(on_hosts), kept))
    }

    async fn send(&self, layers: &Upload) -> Result<(OnHosts, Layers), TrainerError> {
        let guest = Upload::guest(&self.job.guest).await?;
        OnHosts::send(&guest, layers, self.hosts, self.events).await
    }
}

/// Whether the frozen layers are none that the hosts take or run.
fn are_refused(error: &TrainerError) -> bool {
    match error {
        TrainerError::LayersTooLarge { .. } => true,
        TrainerError::Client(ClientError::Refused { class, .. }) => matches!(
            class,
            ErrorClass::Request | ErrorClass::TooLarge | ErrorClass::Guest
        ),
        _ => false,
    }
}
