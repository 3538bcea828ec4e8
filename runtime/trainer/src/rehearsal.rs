//! Training steps at given splits, for benchmarks.

use crate::event::notices;
use crate::offer::Offer;
use crate::pipeline::{FeedPlan, Part, Steering};
use crate::setup::prepare;
use crate::training::context::JobContext;
use crate::training::run::{RunParts, RunRecord, TrainingRun};
use crate::{Events, FetchLimits, Job, Policy, SettingError, TrainerError};
use frostline_client::{Hosts, Samples, Source, Weight};
use frostline_compute::{Dedicated, Suffix, SuffixParts};
use frostline_wire::{Encoding, Split};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Number of passes over the data per epoch. The driver waits for all requests between epochs, which is rare
/// in a real job and overlaps with validation. With only a few steps per leg, this would dominate the
/// measurement.
const PASSES: usize = 64;

/// Runs training steps at given splits to measure them, without validation and without writing a model. A
/// rehearsal can be run repeatedly.
pub struct Rehearsal {
    job: Job,
    hosts: Hosts,
    feed: FeedPlan,
    offer: Arc<Offer>,
    parts: SuffixParts,
    /// `None` before the first run, during a run and after a failed run.
    suffix: Option<Dedicated<Suffix>>,
}

/// Consecutive steps at the same split.
#[derive(Debug, Clone, PartialEq)]
pub struct Leg {
    /// The split.
    pub split: Split,
    /// Encoding of the activations.
    pub encoding: Encoding,
    /// Number of steps.
    pub steps: u64,
}

impl Rehearsal {
    /// Uploads missing files to the hosts and divides the network.
    ///
    /// # Errors
    /// Returns the same errors as [`crate::train`].
    pub async fn open(job: Job, hosts: impl Into<Hosts>, events: &Events) -> Result<Self, TrainerError> {
        let mut job = job.checked().await?;
        let hosts = hosts.into();
        let for_job = hosts.for_job(notices(events));
        job.spec.split = Policy::Fixed(Split::Cut(job.freeze.clone()));
        let mut prepared = prepare(&job, false, &for_job, events).await?;
        let train = &prepared.data.feed.train;
        let train: Samples = std::iter::repeat_n(train, PASSES)
            .flat_map(|samples| samples.iter())
            .collect();
        let feed = FeedPlan {
            train: Arc::new(train),
            validation: Arc::default(),
            initial_train_pass: false,
            features: None,
            largest_batches: [prepared.data.feed.largest_batches[0], Weight::default()],
            ..prepared.data.feed
        };
        // Keep the middles of all splits loaded, otherwise a leg would have to wait.
        prepared.suffix.middles = usize::MAX;
        Ok(Self {
            job,
            hosts,
            feed,
            offer: prepared.offer,
            parts: prepared.suffix,
            suffix: None,
        })
    }

    /// Trains the steps of `legs` consecutively without a pause. The data are repeated if there are not
    /// enough samples. Training continues with the weights of the previous run.
    ///
    /// # Errors
    /// Returns the same errors as [`crate::train`], and [`TrainerError::Setting`] if there are no steps.
    pub async fn run(
        &mut self,
        legs: &[Leg],
        flow: FetchLimits,
        events: &Events,
        cancel: &CancellationToken,
    ) -> Result<(), TrainerError> {
        let steps: u64 = legs.iter().map(|leg| leg.steps).sum();
        let Some(first) = legs.first().filter(|_| steps > 0) else {
            return Ok(SettingError::at_least_one("the number of steps", 0)?);
        };
        let schedule = legs
            .iter()
            .map(|leg| Ok((leg.steps, self.source(leg, flow)?)))
            .collect::<Result<VecDeque<_>, TrainerError>>()?;
        let steering = Steering::scheduled(self.source(first, flow)?, schedule);
        let ran = cancel.run_until_cancelled(self.train_legs(legs, steering, flow, events, cancel));
        ran.await.unwrap_or(Err(TrainerError::Cancelled))
    }

    fn source(&self, leg: &Leg, flow: FetchLimits) -> Result<Arc<Source>, TrainerError> {
        let source = self
            .offer
            .source_at(&leg.split, leg.encoding, flow.request_samples);
        source.map(Arc::new)
    }

    async fn train_legs(
        &mut self,
        legs: &[Leg],
        steering: Steering,
        flow: FetchLimits,
        events: &Events,
        cancel: &CancellationToken,
    ) -> Result<(), TrainerError> {
        let steps: u64 = legs.iter().map(|leg| leg.steps).sum();
        let suffix = match self.suffix.take() {
            Some(suffix) => suffix,
            None => Suffix::start(self.parts.clone(), Some(&steering.current().split)).await?,
        };
        for leg in legs {
            let split = leg.split.clone();
            suffix.run(move |suffix| suffix.prepare_middle(&split)).await?;
        }
        let batches = self.feed.batches(Part::Train).max(1) as u64;
        let feed = FeedPlan {
            epochs: u32::try_from(steps.div_ceil(batches)).unwrap_or(u32::MAX),
            ahead: flow.ahead,
            ..self.feed.clone()
        };
        let parts = RunParts {
            feed,
            steering,
            window: flow.window,
            offer: Arc::clone(&self.offer),
            watch: None,
            freeze: self.job.freeze.clone(),
            may_saturate: false,
        };
        let hosts = self.hosts.for_job(notices(events));
        let context = JobContext {
            job: &self.job,
            hosts: &hosts,
            events,
            cancel,
        };
        let record = RunRecord::new(context, None);
        let mut run = TrainingRun::start(context, parts, record, suffix)?;
        for step in 0..steps {
            let index = step % batches;
            run.step(1, index as usize).await?;
        }
        self.suffix = Some(run.suffix);
        Ok(())
    }
}
