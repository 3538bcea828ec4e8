//! The training loop: fetches batches, executes steps, and reconsiders the split after each.

mod check;
mod record;
mod step;

pub(crate) use record::{Best, RunRecord};

use crate::checkpoint::{BestNote, EpochResult, Progress, SavedEpoch, TrainingState};
use crate::evaluation::{Predictions, Validation};
use crate::host_loads::watch_loads;
use crate::offer::Offer;
use crate::pipeline::{Feed, FeedBatch, FeedPlan, Part, Steering};
use crate::recipe::Steps;
use crate::replan::Watch;
use crate::training::context::JobContext;
use crate::{Event, Events, LossName, Quality, Received, TrainedEpoch, TrainerError};
use frostline_client::{Fetcher, Hosts};
use frostline_compute::{ComputeError, Dedicated, Suffix, SuffixParts, session_options};
use frostline_engine::Device;
use frostline_images::{DecodeLimits, DecodePool};
use frostline_rows::BatchRows;
use frostline_tensor::Tensor;
use frostline_wire::Split;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Parts of a run except for the suffix.
pub(crate) struct RunParts {
    pub(crate) feed: FeedPlan,
    pub(crate) steering: Steering,
    /// Maximum number of open requests per host.
    pub(crate) window: usize,
    pub(crate) offer: Arc<Offer>,
    /// `None` if the split is fixed.
    pub(crate) watch: Option<Watch>,
    /// The freeze cut.
    pub(crate) freeze: String,
    /// True if the frozen layers have 8-bit weights, which saturate on some processors.
    pub(crate) may_saturate: bool,
}

/// Starts a fetcher with up to `open_requests` open requests per host and `threads` decoding threads, or a thread
/// per core if `threads` is 0. It decodes images with up to `image_pixels` pixels.
///
/// # Errors
/// Returns [`ComputeError::Thread`] if the system cannot start a thread.
pub fn fetcher(
    open_requests: usize,
    threads: usize,
    image_pixels: Option<u64>,
) -> Result<Fetcher, TrainerError> {
    let threads = session_options(Device::Cpu, threads).threads;
    let decoders = DecodePool::start(threads).map_err(|source| ComputeError::Thread { source })?;
    let decoders = decoders.with_limits(DecodeLimits::new(image_pixels));
    Ok(Fetcher::new(open_requests, decoders))
}

/// A running job: fetches batches, trains the suffix, and watches the split.
pub(crate) struct TrainingRun {
    phase: RunPhase,
    pub(crate) record: RunRecord,
    epoch: EpochCounts,
    pub(crate) suffix: Dedicated<Suffix>,
    hosts: Hosts,
    events: Events,
    pub(crate) steering: Arc<Steering>,
    fetcher: Fetcher,
    _load_watch: AbortOnDropHandle<()>,
    steps: Steps,
    /// Largest learning rate over all weights.
    learning_rate: f32,
    /// True if losses above `IMPLAUSIBLE_LOSS` indicate divergence. This is not the case for squared
    /// errors.
    loss_is_bounded: bool,
    /// Bytes received for batches so far.
    received: Received,
    stop: CancellationToken,
}

/// What depends on the freeze cut, and is replaced when a later phase trains more layers.
struct RunPhase {
    /// The freeze cut.
    freeze: String,
    plan: FeedPlan,
    feed: Feed,
    offer: Arc<Offer>,
    /// `None` if the split is fixed.
    watch: Option<Watch>,
}

/// Measurements of the training steps of an epoch.
#[derive(Default)]
struct EpochCounts {
    /// Seconds that the steps waited for batches.
    waited_seconds: f64,
    cached_rows: u64,
    fetched_rows: u64,
}

impl TrainingRun {
    /// Starts fetching.
    pub(crate) fn start(
        context: JobContext<'_>,
        parts: RunParts,
        record: RunRecord,
        suffix: Dedicated<Suffix>,
    ) -> Result<Self, TrainerError> {
        let JobContext {
            job, hosts, events, ..
        } = context;
        let steering = Arc::new(parts.steering);
        let fetcher = fetcher(parts.window, job.spec.threads, job.spec.hosts.image_pixels)?;
        Ok(Self {
            steps: Steps::new(&job.spec.recipe, parts.feed.train.len()),
            phase: RunPhase {
                freeze: parts.freeze,
                feed: Feed::start(
                    parts.feed.clone(),
                    fetcher.clone(),
                    Arc::clone(&steering),
                    hosts.clone(),
                    Arc::clone(&record.bad),
                )?,
                plan: parts.feed,
                offer: parts.offer,
                watch: parts.watch,
            },
            record,
            epoch: EpochCounts::default(),
            suffix,
            hosts: hosts.clone(),
            events: Arc::clone(events),
            _load_watch: watch_loads(hosts, &fetcher, &steering, events, parts.may_saturate),
            steering,
            fetcher,
            learning_rate: job.spec.recipe.rates().largest() as f32,
            loss_is_bounded: job.spec.recipe.loss != LossName::Mse,
            received: Received::default(),
            stop: context.cancel.clone(),
        })
    }

    /// Starts a phase that trains more layers. Weights trained in earlier phases are kept.
    pub(crate) async fn unfreeze(
        &mut self,
        parts: RunParts,
        layers: SuffixParts,
    ) -> Result<(), TrainerError> {
        let source = parts.steering.current();
        let split = source.split.clone();
        self.steering.set_source(source);
        self.suffix
            .run(move |suffix| {
                suffix.unfreeze(layers)?;
                suffix.prepare_middle(&split)
            })
            .await?;
        self.phase = RunPhase {
            freeze: parts.freeze,
            feed: Feed::start(
                parts.feed.clone(),
                self.fetcher.clone(),
                Arc::clone(&self.steering),
                self.hosts.clone(),
                Arc::clone(&self.record.bad),
            )?,
            plan: parts.feed,
            offer: parts.offer,
            watch: parts.watch,
        };
        Ok(())
    }

    /// Waits for the next batch, or fails if the job is cancelled.
    async fn next(&mut self) -> Result<FeedBatch, TrainerError> {
        let batch = self.stop.run_until_cancelled(self.phase.feed.next()).await;
        batch.unwrap_or(Err(TrainerError::Cancelled))
    }

    /// Collects the statistics of the features over all training samples, and standardizes the suffix.
    async fn measure_moments(&mut self) -> Result<(), TrainerError> {
        for _ in 0..self.phase.plan.batches(Part::Train) {
            let batch = &mut self.next().await?;
            let Some(rows) = batch.rows.take() else { continue };
            let split = batch.source.split.clone();
            self.suffix
                .run(move |suffix| {
                    at_freeze_cut(suffix, &split, rows, |suffix, activations| {
                        suffix.add_moments(activations);
                        Ok(())
                    })
                })
                .await?;
        }
        self.suffix
            .run(|suffix| {
                suffix.standardize();
                Ok(())
            })
            .await
    }

    pub(crate) async fn baseline(&mut self) -> Result<Quality, TrainerError> {
        let started = Instant::now();
        if self.phase.plan.initial_train_pass {
            self.measure_moments().await?;
        }
        let Validation {
            quality, received, ..
        } = self.validate().await?;
        let bytes_received = received.training + received.validation;
        let seconds = started.elapsed().as_secs_f64();
        self.received.baseline += bytes_received;
        self.record.baseline = Some(quality);
        (self.events)(Event::Baseline {
            validation: quality,
            bytes_received,
            seconds,
        });
        Ok(quality)
    }

    /// Trains an epoch or the rest of it, validates, and saves a checkpoint.
    pub(crate) async fn epoch(&mut self, epoch: u32) -> Result<(), TrainerError> {
        let started = Instant::now();
        self.epoch = EpochCounts::default();
        let loss = self.train(epoch).await?;
        self.check(loss, epoch == self.phase.plan.epochs)?;
        let weights = self.suffix.run(|suffix| suffix.weights()).await?;
        if !weights.iter().all(|(_, weight)| is_finite(weight)) {
            return Err(self.diverged(
                self.record.progress.step,
                "weights became NaN or infinite".to_owned(),
            ));
        }
        let Validation {
            quality,
            received,
            predictions,
            cached,
        } = self.validate().await?;
        let samples = predictions.len();
        self.received.training += received.training;
        self.received.validation += received.validation;
        let predictions = Arc::new(predictions);
        self.keep_if_best(epoch, quality, weights, &predictions);
        self.record.predictions = Some(predictions);
        (self.events)(Event::Epoch(TrainedEpoch {
            epoch,
            loss,
            validation: quality,
            bytes_received: received.training + received.validation,
            validation_bytes_received: received.validation,
            seconds: started.elapsed().as_secs_f64(),
            waited_seconds: self.epoch.waited_seconds,
            split: self.steering.current().split.clone(),
            skipped: self.record.bad.count(),
            cached_rows: self.epoch.cached_rows + cached as u64,
            fetched_rows: self.epoch.fetched_rows + samples.saturating_sub(cached) as u64,
        }));
        self.record.last = Some(EpochResult { loss, quality });
        self.record.progress = Progress {
            beyond: self.record.progress.beyond,
            ..Progress::at(epoch + 1, self.record.progress.step)
        };
        self.save().await
    }

    /// Keeps the weights if the epoch is better than all previous ones. If epochs are equal, the first is
    /// kept, as in reports and lists of runs.
    fn keep_if_best(
        &mut self,
        epoch: u32,
        quality: Quality,
        weights: Vec<(String, Tensor)>,
        predictions: &Arc<Predictions>,
    ) {
        let best = self.record.best.as_ref().map(|best| best.note.quality);
        if best.is_some_and(|best| quality.compare(&best) != Ordering::Greater) {
            return;
        }
        self.record.best = Some(Best {
            note: BestNote { epoch, quality },
            saved: SavedEpoch {
                weights: Arc::new(weights),
                predictions: Some(Arc::clone(predictions)),
            },
        });
    }

    /// Trains the remaining batches of an epoch. Returns the mean loss over all samples of the epoch.
    async fn train(&mut self, epoch: u32) -> Result<f64, TrainerError> {
        for index in self.record.progress.batch..self.phase.plan.batches(Part::Train) {
            let (loss, count) = self.step(epoch, index).await?;
            self.record.progress.add(loss, count);
            let step = self.record.progress.step;
            if self
                .record
                .checkpoint_writer
                .as_ref()
                .is_some_and(|checkpoint_writer| checkpoint_writer.is_due(step))
            {
                self.save().await?;
            }
        }
        let Progress { loss, samples, .. } = self.record.progress;
        if samples == 0 {
            return Err(self
                .record
                .bad
                .nothing_left(Part::Train, self.phase.plan.train.len()));
        }
        Ok(loss / samples as f64)
    }

    /// Starts writing a checkpoint, if the job has a run folder.
    pub(crate) async fn save(&mut self) -> Result<(), TrainerError> {
        let (Some(checkpoint_writer), Some(baseline)) =
            (self.record.checkpoint_writer.as_mut(), self.record.baseline)
        else {
            return Ok(());
        };
        let suffix = self.suffix.run(|suffix| suffix.state()).await?;
        let source = self.steering.current();
        let situation = TrainingState {
            progress: self.record.progress,
            freeze: self.phase.freeze.clone(),
            split: source.split.clone(),
            encoding: source.encoding,
            baseline,
            last: self.record.last,
            best: self.record.best.as_ref().map(|best| best.note),
        };
        let best = self.record.best.as_ref().map(|best| best.saved.clone());
        checkpoint_writer
            .save(situation, suffix, self.record.bad.all(), best)
            .await;
        Ok(())
    }

    /// Bytes received for batches so far, split up by purpose.
    pub(crate) fn received(&self) -> Received {
        Received {
            interrupted: self.fetcher.interrupted(),
            ..self.received
        }
    }

    async fn validate(&mut self) -> Result<Validation, TrainerError> {
        let validation = Validation::run(
            &self.phase.plan,
            &mut self.phase.feed,
            &self.record.bad,
            &self.suffix,
            |suffix, split, rows| at_freeze_cut(suffix, split, rows, Suffix::predict),
            &self.events,
        );
        let validation = self.stop.run_until_cancelled(validation).await;
        validation.unwrap_or(Err(TrainerError::Cancelled))
    }
}

/// Calls `work` with the rows of a batch at the freeze cut, `[rows, ..]`, and then queues them for the feature
/// cache. The middle computes the rows that were fetched at `split`.
fn at_freeze_cut<R>(
    suffix: &mut Suffix,
    split: &Split,
    rows: BatchRows,
    work: impl FnOnce(&mut Suffix, &Tensor) -> Result<R, ComputeError>,
) -> Result<R, TrainerError> {
    let (activations, pending) = rows.join(|fetched| {
        let computed = fetched.map(|rows| suffix.activations(split, rows));
        Ok::<_, TrainerError>(computed.transpose()?)
    })?;
    let result = work(suffix, &activations)?;
    pending.cache(activations);
    Ok(result)
}

/// Returns true if all values of the weight are finite.
fn is_finite(weight: &Tensor) -> bool {
    let values = weight.as_f32().unwrap_or_default();
    values.iter().all(|value| value.is_finite())
}
