use super::data::JobData;
use super::network::DividedNetwork;
use crate::event::warn;
use crate::guest::stock_description;
use crate::host_loads::HostLoads;
use crate::int8::{IMAGES, Int8Candidate, decide_for};
use crate::model_metadata::normalized_twice;
use crate::offer::Offer;
use crate::pipeline::Part;
use crate::upload::{OnHosts, Upload};
use crate::{Event, Events, FetchLimits, Job, Policy, TrainerError, blocking};
use frostline_client::Hosts;
use frostline_plan::{
    CostModel, LayersLocation, Modules, PlanError, Planner, Reuse, Survey, TrainerProfile, UsableSplit,
    Workload, round_to_grants,
};
use frostline_wire::{Description, Encoding, Link, Split};
use std::collections::HashSet;
use tokio::sync::OnceCell;

/// Setup of a job with listed data and a divided network. All later phases use it.
pub(super) struct Setup<'a> {
    pub(super) job: &'a Job,
    /// True if a fixed split is measured like a planned one.
    pub(super) measure: bool,
    pub(super) hosts: &'a Hosts,
    /// The same hosts, with a separate counter for the bytes received by measurements.
    pub(super) measuring: Hosts,
    pub(super) events: &'a Events,
    pub(super) data: JobData,
    pub(super) network: DividedNetwork,
    /// Samples per guest call, if the hosts report it.
    pub(super) grant: Option<usize>,
    /// Request size and prefetch limits of the job. Requests contain whole grants.
    pub(super) flow: FetchLimits,
    /// Planned reuse of cached features. `None` if every epoch fetches all samples.
    pub(super) planned_reuse: Option<Reuse>,
    /// Measurements taken before the frozen layers were sent.
    pub(super) early_measurements: Option<LinkAndTrainer>,
    /// The layers up to the freeze cut, serialized on first use.
    pub(super) layers: OnceCell<Upload>,
    /// Hash of these layers for the feature cache, computed on first use.
    pub(super) layers_hash: OnceCell<String>,
}

/// Measurements that do not need the frozen layers on the hosts.
#[derive(Clone)]
pub(super) struct LinkAndTrainer {
    pub(super) link: Link,
    pub(super) trainer: TrainerProfile,
}

impl<'a> Setup<'a> {
    /// Lists the data and divides the network.
    pub(super) async fn new(
        job: &'a Job,
        measure: bool,
        hosts: &'a Hosts,
        events: &'a Events,
    ) -> Result<Self, TrainerError> {
        let measuring = hosts.metered();
        let data = JobData::list(job, hosts, events).await?;
        let mut network = DividedNetwork::build(job, &data.outputs).await?;
        // A custom guest may deviate from the pixel recipe in its description, so only the stock guest's
        // recipe is reported.
        if let Some((recipe, source)) = network.pixels
            && job.guest.is_stock()
        {
            events(Event::Pixels { recipe, source });
            if let Some(message) = normalized_twice(&job.model, &recipe, source) {
                warn(events, message);
            }
        }
        if let Some(message) = network.fixed_weights() {
            warn(events, message);
        }
        let candidate = Int8Candidate {
            model: &network.headed,
            freeze: job.earliest_freeze(),
            precision: job.spec.prefix_precision,
            allow_imprecise: job.spec.allow_imprecise,
            pixels: network.pixels.map(|(recipe, _)| recipe),
            root: &job.spec.data,
            images: data.feed.train.spread(IMAGES),
            hosts: &measuring,
            threads: job.spec.threads,
            cache: job.cache.as_ref(),
            run: job.run.as_ref(),
        };
        if let Some(quantized) = decide_for(job, candidate, events).await? {
            network = blocking(move || network.with_quantized(quantized)).await?;
        }
        let grant = HostLoads::ask(hosts).await.grant();
        Ok(Self {
            job,
            measure,
            hosts,
            measuring,
            events,
            data,
            network,
            grant,
            flow: flow(job, grant),
            planned_reuse: None,
            early_measurements: None,
            layers: OnceCell::new(),
            layers_hash: OnceCell::new(),
        })
    }

    /// Returns the splits and encodings available with the guest that `description` belongs to.
    pub(super) fn offer(&self, on_hosts: Option<OnHosts>, description: Description) -> Offer {
        Offer {
            root: self.job.spec.data.clone(),
            network: self.network.network.clone(),
            freeze: self.job.freeze.clone(),
            on_hosts,
            parameters: self.network.parameters.clone(),
            description,
            object_bytes: self.data.object_bytes,
            encoding: self.job.spec.encoding.fixed(),
            terms: self.job.terms(),
            flow: self.flow,
        }
    }

    /// [`Setup::offer`] for the stock guest, with the description known in advance.
    ///
    /// # Errors
    /// Returns [`TrainerError::Pixels`] if the network takes other inputs than images.
    pub(super) fn stock_offer(&self, on_hosts: Option<OnHosts>) -> Result<Offer, TrainerError> {
        let description = stock_description(&self.network.network, self.network.recipe()?);
        Ok(self.offer(on_hosts, description))
    }

    /// Returns true if the job can continue when the hosts refuse the frozen layers: the split is open and
    /// may be `none`, and the trainer can do all the work of the stock guest.
    pub(super) fn needs_no_host(&self) -> bool {
        let job = self.job;
        job.spec.split == Policy::Auto
            && job.guest.is_stock()
            && job
                .spec
                .candidates
                .as_ref()
                .is_none_or(|only| only.contains(&Split::None))
            && job
                .spec
                .encoding
                .fixed()
                .is_none_or(|encoding| encoding == Encoding::F32)
    }

    /// Returns the layers up to the freeze cut. If no layer is frozen, returns the layers up to the first
    /// cut, because a host needs a model to preprocess images.
    pub(super) async fn frozen_layers(&self) -> Result<Upload, TrainerError> {
        let end = match self.network.first_cut() {
            Some(first) if self.network.nothing_is_frozen(&self.job.freeze) => first,
            _ => &self.job.freeze,
        };
        let layers = self.layers.get_or_try_init(|| self.layers_up_to(end));
        layers.await.cloned()
    }

    /// Returns the layers up to the cut `end` for an upload. The result is not cached.
    pub(super) async fn layers_up_to(&self, end: &str) -> Result<Upload, TrainerError> {
        Upload::layers(&self.job.model_name(), self.network.frozen.clone(), end).await
    }

    /// Returns the usable splits, limited to the job's candidates, at which two batches fit the job's memory.
    ///
    /// # Errors
    /// Returns [`TrainerError::Plan`] if none of the job's candidates is usable, [`TrainerError::Memory`] if
    /// no candidate fits, and the errors of [`Offer::usable`] and
    /// [`Offer::source_at`].
    pub(super) fn fitting(&self, offer: &Offer) -> Result<Vec<UsableSplit>, TrainerError> {
        let mut fitting = Vec::new();
        let mut refusal = None;
        let mut considered = offer.usable()?;
        if let Some(only) = &self.job.spec.candidates {
            if !considered.iter().any(|usable| only.contains(&usable.split)) {
                return Err(no_candidate(&self.job.spec.split, only, &considered).into());
            }
            considered.retain(|usable| only.contains(&usable.split));
        }
        for usable in considered {
            let encoding = usable.encodings.first().copied().unwrap_or_default();
            let source = offer.source_at(&usable.split, encoding, self.flow.request_samples)?;
            match self.data.feed.check_memory(&source) {
                Ok(()) => fitting.push(usable),
                Err(error) => refusal = Some(error),
            }
        }
        match refusal {
            Some(error) if fitting.is_empty() => Err(error),
            _ => Ok(fitting),
        }
    }

    /// Keeps `none`, `input` and the cuts worth measuring; keeps all cuts if the job names its candidates.
    pub(super) fn worthwhile(&self, splits: Vec<UsableSplit>) -> Result<Vec<UsableSplit>, TrainerError> {
        let job = self.job;
        let network = &self.network;
        let candidates = frostline_profile::candidates(&network.frozen, &network.network, &job.freeze)?;
        let worthwhile: HashSet<&str> = candidates.iter().map(|cut| cut.name.as_str()).collect();
        Ok(splits
            .into_iter()
            .filter(|usable| match &usable.split {
                Split::Cut(name) => job.spec.candidates.is_some() || worthwhile.contains(name.as_str()),
                Split::None | Split::Input => true,
            })
            .collect())
    }

    /// Samples of a full batch.
    pub(super) fn batch(&self) -> usize {
        self.data.feed.batch.min(self.data.feed.train.len())
    }

    /// Creates the job's planner from these measurements.
    pub(super) fn planner(
        &self,
        survey: Survey,
        splits: Vec<UsableSplit>,
        link: Link,
        shared_cores: bool,
    ) -> Planner {
        let job = self.job;
        let feed = &self.data.feed;
        let epoch = (feed.batches(Part::Train) as u64).max(1);
        let cost = CostModel {
            objective: job.spec.objective,
            prices: job.spec.prices,
            trainer_cores: survey.trainer.platform.decode_threads as f64,
        };
        Planner {
            survey,
            splits,
            workload: Workload {
                batch: self.batch().max(1),
                iterations: epoch * u64::from(job.spec.recipe.epochs.max(1)),
                epoch_iterations: epoch,
                epoch_samples: feed.train.len() as f64,
                link_bytes_per_second: link.bytes_per_second,
                shared_cores,
                request_share: (self.flow.request_samples as f64 / feed.batch as f64).min(1.0),
                reuse: self.planned_reuse,
                cost,
            },
            link,
            policy: job.spec.split.clone(),
            flow_limits: self.flow,
            grant: self.grant,
            layers: LayersLocation::default(),
            modules: Modules::from_network(&self.network.network),
        }
    }
}

/// Returns the job's limits for requests, with whole grants of `grant` samples.
pub(super) fn flow(job: &Job, grant: Option<usize>) -> FetchLimits {
    FetchLimits {
        request_samples: round_to_grants(job.spec.request_samples, grant),
        ..job.spec.fetch_limits()
    }
}

/// Returns the error for a job none of whose candidates is usable.
fn no_candidate(policy: &Policy, candidates: &[Split], usable: &[UsableSplit]) -> PlanError {
    PlanError::Policy {
        policy: policy.to_string(),
        why: format!(
            "none of the candidates can be used ({}); choose among {}",
            joined(candidates.iter()),
            joined(usable.iter().map(|usable| &usable.split))
        ),
    }
}

fn joined<'a>(splits: impl Iterator<Item = &'a Split>) -> String {
    splits.map(Split::to_string).collect::<Vec<_>>().join(", ")
}
