//! A job's loop: batches in, steps out, and the split reconsidered after each.

mod step;

use crate::checkpoint::{BestNote, CheckpointWriter, EpochResult, Progress, SavedEpoch, TrainingState};
use crate::compute::{Dedicated, Suffix, SuffixParts, session_options};
use crate::evaluation::Predictions;
use crate::evaluation::{Predicting, Validation};
use crate::host_loads::LoadWatch;
use crate::offer::Offer;
use crate::pipeline::{BadSamples, Batch, Feed, FeedPlan, Part, Steering};
use crate::recipe::Steps;
use crate::replan::Watch;
use crate::{Event, Events, Flow, Job, LossName, Quality, Received, TrainerError};
use frostline_client::{Fetcher, Hosts};
use frostline_engine::Device;
use frostline_images::DecodePool;
use frostline_tensor::Tensor;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// What a run is made of, beside its suffix.
pub(crate) struct RunParts {
    pub(crate) feed: FeedPlan,
    pub(crate) steering: Steering,
    pub(crate) flow: Flow,
    pub(crate) offer: Arc<Offer>,
    /// `None` for splits that are given.
    pub(crate) watch: Option<Watch>,
    /// Samples that are known to be bad.
    pub(crate) bad: Vec<(Part, usize)>,
    /// Whether the frozen layers have int8 weights of eight bits, which saturate on some processors.
    pub(crate) may_saturate: bool,
}

/// A fetcher that decodes on as many threads as the engine has.
pub(crate) fn fetcher(open_requests: usize, threads: usize) -> Result<Fetcher, TrainerError> {
    let threads = session_options(Device::Cpu, threads).threads;
    let decoders = DecodePool::start(threads).map_err(|source| TrainerError::Thread { source })?;
    Ok(Fetcher::new(open_requests, decoders))
}

/// A job that runs: batches come in, the suffix is trained, the planner watches.
pub(crate) struct Run {
    plan: FeedPlan,
    feed: Feed,
    hosts: Hosts,
    pub(crate) suffix: Dedicated<Suffix>,
    pub(crate) bad: Arc<BadSamples>,
    events: Events,
    pub(crate) steering: Arc<Steering>,
    offer: Arc<Offer>,
    watch: Option<Watch>,
    steps: Steps,
    /// The largest of any weight.
    learning_rate: f32,
    fetcher: Fetcher,
    _following: LoadWatch,
    /// Bytes of the batches so far.
    received: Received,
    pub(crate) progress: Progress,
    /// Whether the loss is of probabilities, so that one beyond [`step::IMPOSSIBLE`] is a sign.
    bounded: bool,
    /// Before the first step.
    pub(crate) baseline: Option<Quality>,
    /// The last epoch that ended.
    pub(crate) last: Option<EpochResult>,
    pub(crate) best: Option<Best>,
    /// What the last epoch's weights made of the validation samples.
    pub(crate) predictions: Option<Arc<Predictions>>,
    /// Up to where the network is frozen.
    pub(crate) freeze: String,
    /// Has it end after the step under way.
    pub(crate) stop: CancellationToken,
    pub(crate) checkpoint_writer: Option<CheckpointWriter>,
    /// Seconds the steps of this epoch waited for their batches.
    waited: f64,
    /// Its training rows: those that were kept, and the others.
    rows: [u64; 2],
}

/// The best epoch so far.
#[derive(Clone)]
pub(crate) struct Best {
    pub(crate) note: BestNote,
    pub(crate) kept: SavedEpoch,
}

impl Run {
    /// Starts fetching.
    pub(crate) fn start(
        job: &Job,
        parts: RunParts,
        suffix: Dedicated<Suffix>,
        hosts: &Hosts,
        events: &Events,
    ) -> Result<Self, TrainerError> {
        let steps = Steps::new(&job.spec.recipe, parts.feed.train.len());
        let plan = FeedPlan {
            ahead: parts.flow.ahead,
            ..parts.feed
        };
        let bad = Arc::new(BadSamples::new(job.spec.on_bad_sample, Arc::clone(events)));
        bad.restore(parts.bad);
        let steering = Arc::new(parts.steering);
        let fetcher = fetcher(parts.flow.window, job.spec.threads)?;
        let feed = Feed::start(
            plan.clone(),
            fetcher.clone(),
            Arc::clone(&steering),
            hosts.clone(),
            Arc::clone(&bad),
        )?;
        Ok(Self {
            plan,
            feed,
            hosts: hosts.clone(),
            suffix,
            bad,
            events: Arc::clone(events),
            offer: parts.offer,
            watch: parts.watch,
            steps,
            learning_rate: job.spec.recipe.rates().most() as f32,
            _following: LoadWatch::start(
                hosts,
                &fetcher,
                &steering,
                parts.may_saturate.then(|| Arc::clone(events)),
            ),
            fetcher,
            steering,
            received: Received::default(),
            progress: Progress::start(),
            bounded: job.spec.recipe.loss != LossName::Mse,
            baseline: None,
            last: None,
            best: None,
            predictions: None,
            freeze: job.freeze.clone(),
            stop: CancellationToken::new(),
            checkpoint_writer: None,
            waited: 0.0,
            rows: [0; 2],
        })
    }

    /// Starts a phase that trains more layers; layers trained before keep their weights.
    pub(crate) async fn unfreeze(
        &mut self,
        parts: RunParts,
        layers: SuffixParts,
    ) -> Result<(), TrainerError> {
        let source = parts.steering.now();
        let split = source.split.clone();
        self.steering.set_source(source);
        let widen = move |suffix: &mut Suffix| {
            suffix.unfreeze(layers)?;
            suffix.prepare_middle(&split)
        };
        self.suffix.run(widen).await?;
        self.plan = FeedPlan {
            ahead: parts.flow.ahead,
            ..parts.feed
        };
        self.feed = Feed::start(
            self.plan.clone(),
            self.fetcher.clone(),
            Arc::clone(&self.steering),
            self.hosts.clone(),
            Arc::clone(&self.bad),
        )?;
        (self.offer, self.watch) = (parts.offer, parts.watch);
        Ok(())
    }

    /// The next batch, unless the job is to end.
    async fn next(&mut self) -> Result<Batch, TrainerError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(TrainerError::Cancelled),
            batch = self.feed.next() => batch,
        }
    }

    /// Has the suffix look at every training sample.
    async fn measure_moments(&mut self) -> Result<(), TrainerError> {
        for _ in 0..self.plan.batches(Part::Train) {
            let batch = &mut self.next().await?;
            let Some(rows) = batch.rows.take() else { continue };
            let split = batch.source.split.clone();
            self.suffix
                .run(move |suffix| suffix.add_moments(&split, rows))
                .await?;
        }
        let standardize = |suffix: &mut Suffix| {
            suffix.standardize();
            Ok(())
        };
        self.suffix.run(standardize).await
    }

    pub(crate) async fn baseline(&mut self) -> Result<Quality, TrainerError> {
        let started = Instant::now();
        if self.plan.looks {
            self.measure_moments().await?;
        }
        let Validation {
            quality, received, ..
        } = self.validate().await?;
        let bytes_received = received.training + received.validation;
        let seconds = started.elapsed().as_secs_f64();
        self.received.baseline += bytes_received;
        self.baseline = Some(quality);
        (self.events)(Event::Baseline {
            validation: quality,
            bytes_received,
            seconds,
        });
        Ok(quality)
    }

    /// Trains an epoch, or what is left of it, validates, and has that kept.
    pub(crate) async fn epoch(&mut self, epoch: u32) -> Result<(), TrainerError> {
        let started = Instant::now();
        (self.waited, self.rows) = (0.0, [0; 2]);
        let loss = self.train(epoch).await?;
        self.check(loss, epoch == self.plan.epochs)?;
        let weights = self.suffix.run(|suffix| suffix.weights()).await?;
        if !weights.iter().all(|(_, weight)| is_finite(weight)) {
            return Err(self.diverged(self.progress.step, "weights became NaN or infinite".to_owned()));
        }
        let Validation {
            quality,
            received,
            predictions,
            kept,
        } = self.validate().await?;
        let samples = predictions.len();
        let [trained_kept, trained_fetched] = self.rows;
        self.received.training += received.training;
        self.received.validation += received.validation;
        let predictions = Arc::new(predictions);
        self.compare(epoch, quality, weights, &predictions);
        self.predictions = Some(predictions);
        (self.events)(Event::Epoch {
            epoch,
            loss,
            validation: quality,
            bytes_received: received.training + received.validation,
            validation_bytes_received: received.validation,
            seconds: started.elapsed().as_secs_f64(),
            waited_seconds: self.waited,
            split: self.steering.now().split.clone(),
            skipped: self.bad.count(),
            kept_rows: trained_kept + kept as u64,
            fetched_rows: trained_fetched + samples.saturating_sub(kept) as u64,
        });
        self.last = Some(EpochResult { loss, quality });
        self.progress = Progress {
            beyond: self.progress.beyond,
            ..Progress::at(epoch + 1, self.progress.step)
        };
        self.save().await
    }

    /// Keeps the weights after an epoch that is better than all before it: of equal ones the first counts, as in reports and lists of runs.
    fn compare(
        &mut self,
        epoch: u32,
        quality: Quality,
        weights: Vec<(String, Tensor)>,
        predictions: &Arc<Predictions>,
    ) {
        let best = self.best.as_ref().map(|best| best.note.quality);
        if best.is_some_and(|best| quality.compare(&best) != Ordering::Greater) {
            return;
        }
        self.best = Some(Best {
            note: BestNote { epoch, quality },
            kept: SavedEpoch {
                weights: Arc::new(weights),
                predictions: Some(Arc::clone(predictions)),
            },
        });
    }

    /// Trains the batches of an epoch that are left and returns the mean loss of all its samples.
    async fn train(&mut self, epoch: u32) -> Result<f64, TrainerError> {
        for index in self.progress.batch..self.plan.batches(Part::Train) {
            let (loss, count) = self.step(epoch, index).await?;
            self.progress.add(loss, count);
            let step = self.progress.step;
            if self
                .checkpoint_writer
                .as_ref()
                .is_some_and(|checkpoint_writer| checkpoint_writer.is_due(step))
            {
                self.save().await?;
            }
        }
        let Progress { loss, samples, .. } = self.progress;
        if samples == 0 {
            return Err(self.bad.nothing_left(Part::Train, self.plan.train.len()));
        }
        Ok(loss / samples as f64)
    }

    /// Starts writing a checkpoint, if the job has a run folder.
    pub(crate) async fn save(&mut self) -> Result<(), TrainerError> {
        let (Some(checkpoint_writer), Some(baseline)) = (self.checkpoint_writer.as_mut(), self.baseline)
        else {
            return Ok(());
        };
        let suffix = self.suffix.run(|suffix| suffix.state()).await?;
        let source = self.steering.now();
        let situation = TrainingState {
            progress: self.progress,
            freeze: self.freeze.clone(),
            split: source.split.clone(),
            encoding: source.encoding,
            baseline,
            last: self.last,
            best: self.best.as_ref().map(|best| best.note),
        };
        let best = self.best.as_ref().map(|best| best.kept.clone());
        checkpoint_writer
            .save(situation, suffix, self.bad.all(), best)
            .await;
        Ok(())
    }

    /// Bytes of the batches so far, by what they were for.
    pub(crate) fn received(&self) -> Received {
        Received {
            interrupted: self.fetcher.interrupted(),
            ..self.received
        }
    }

    async fn validate(&mut self) -> Result<Validation, TrainerError> {
        let validation = Validation::run(
            &self.plan,
            &mut self.feed,
            &self.bad,
            Predicting {
                model: &self.suffix,
                predict: Suffix::predict,
            },
            &self.events,
        );
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(TrainerError::Cancelled),
            validation = validation => validation,
        }
    }
}

/// Whether all values of a weight are numbers.
fn is_finite(weight: &Tensor) -> bool {
    let values = weight.as_f32().unwrap_or_default();
    values.iter().all(|value| value.is_finite())
}
