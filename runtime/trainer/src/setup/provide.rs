//! Uploads the guest and the layers that the hosts need.

use super::context::Setup;
use crate::offer::Offer;
use crate::upload::{OnHosts, Upload};
use crate::{Policy, TrainerError, blocking, model_metadata};
use frostline_client::ClientError;
use frostline_graph::ModelLimits;
use frostline_plan::{LayersLocation, Planner};
use frostline_wire::{Description, ErrorClass, Split};

/// A job after the uploads.
pub(super) struct ProvidedSetup<'a> {
    pub(super) setup: Setup<'a>,
    pub(super) offer: Offer,
    pub(super) frozen: FrozenLayers,
}

/// Placement of the frozen layers.
pub(super) enum FrozenLayers {
    /// The hosts have the layers or do not need them.
    OnHosts(LayersLocation),
    /// On the trainer. The planner chooses from the remaining splits.
    OnTrainer(Box<Planner>),
    /// The trainer executes the layers without planning, for this reason.
    RunLocally(String),
}

impl<'a> Setup<'a> {
    /// Uploads the guest and the frozen layers as far as the job needs them on the hosts.
    pub(super) async fn provide_layers(mut self) -> Result<ProvidedSetup<'a>, TrainerError> {
        let sent = match self.reason_to_stay().await? {
            Some(why) => self.run_locally(why),
            None => self.send_layers().await,
        };
        let (offer, frozen) = match sent {
            Err(error) if self.needs_no_host() && are_refused(&error) => {
                self.run_locally(error.to_string())?
            }
            sent => sent?,
        };
        if !self.job.spec.recipe.augmentation().is_none() && !offer.description.augments() {
            let Description { name, version, .. } = &offer.description;
            let guest = format!("{name} {version}");
            return Err(TrainerError::CannotAugment { guest });
        }
        if let Some(spec) = offer.pixels() {
            model_metadata::check(&spec, &offer.network)?;
        }
        Ok(ProvidedSetup {
            setup: self,
            offer,
            frozen,
        })
    }

    /// Returns the reason to run the frozen layers on the trainer without measuring. Either the host in this
    /// process shares its cores and has no link, so that measuring takes longer than any split saves; or
    /// hosts do not admit the layers.
    async fn reason_to_stay(&self) -> Result<Option<String>, TrainerError> {
        let job = self.job;
        if !self.needs_no_host() {
            return Ok(None);
        }
        if job.shared_cores && !self.measure && job.spec.link_bytes_per_second.is_none() {
            return Ok(Some(
                "the host shares this machine's cores, so no split is faster".to_owned(),
            ));
        }
        if self.network.nothing_is_frozen(&job.freeze) {
            return Ok(None);
        }
        let frozen = self.network.frozen.clone();
        let freeze = self.network.network.cut(&job.freeze)?.clone();
        let refused = blocking(move || Ok(frozen.first_refused_cut(&[freeze], &ModelLimits::default())));
        Ok(refused.await?.map(|refused| refused.why.to_string()))
    }

    /// Returns an offer without uploads, for frozen layers that run on the trainer because of `why`.
    fn run_locally(&self, why: String) -> Result<(Offer, FrozenLayers), TrainerError> {
        Ok((self.stock_offer(None)?, FrozenLayers::RunLocally(why)))
    }

    /// Sends the guest and the frozen layers if they are needed and worth it. The split `none` with the stock
    /// guest needs no upload.
    async fn send_layers(&mut self) -> Result<(Offer, FrozenLayers), TrainerError> {
        let job = self.job;
        if job.spec.split == Policy::Fixed(Split::None) && job.guest.is_stock() && !self.measure {
            return Ok((
                self.stock_offer(None)?,
                FrozenLayers::OnHosts(LayersLocation::default()),
            ));
        }
        let layers = self.frozen_layers().await?;
        let layers = match self.network.int8 {
            None => layers.or_whole_network(job, &self.measuring).await,
            Some(_) => layers,
        };
        if job.spec.split == Policy::Auto
            && job.guest.is_stock()
            && let Some((planner, first)) = self.plan_without_layers(&layers).await?
        {
            let on_hosts = match &first {
                Some(first) => Some(self.send(first).await?.0),
                None => None,
            };
            let kept = FrozenLayers::OnTrainer(Box::new(planner));
            return Ok((self.stock_offer(on_hosts)?, kept));
        }
        self.serve(&layers).await
    }

    /// Uploads the guest and the frozen layers, and requests the guest's description.
    async fn serve(&self, layers: &Upload) -> Result<(Offer, FrozenLayers), TrainerError> {
        let (on_hosts, layers) = self.send(layers).await?;
        let offer = match on_hosts.describe(&self.network.parameters, self.hosts).await {
            // The stock guest's description is known, so do not wait for a busy host.
            Err(TrainerError::Client(error)) if self.job.guest.is_stock() && error.may_pass_later() => {
                self.stock_offer(Some(on_hosts))?
            }
            described => self.offer(Some(on_hosts), described?),
        };
        Ok((offer, FrozenLayers::OnHosts(layers)))
    }

    async fn send(&self, layers: &Upload) -> Result<(OnHosts, LayersLocation), TrainerError> {
        let guest = Upload::guest(&self.job.guest).await?;
        OnHosts::send(&guest, layers, self.hosts, self.events).await
    }
}

/// Returns true if the hosts refuse the frozen layers.
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
