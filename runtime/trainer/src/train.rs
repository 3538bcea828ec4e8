use crate::compute::{Dedicated, Suffix};
use crate::pipeline::{BadSamples, Batch, Feed, FeedPlan, Fetcher, Part, Source};
use crate::retry::RetryPolicy;
use crate::setup::{Prepared, blocking, prepare};
use crate::{Event, Events, HostClient, Job, Outcome, TrainerError, export, notes};
use frostline_engine::Interrupt;
use frostline_images::DecodePool;
use frostline_tensor::Tensor;
use frostline_wire::Split;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Fine-tunes a model and writes it.
///
/// `events` is told what happens. When `cancel` is cancelled the job ends soon and leaves nothing behind.
///
/// # Errors
/// [`TrainerError`]; no model is written then.
pub async fn train(
    job: Job,
    client: HostClient,
    events: Events,
    cancel: CancellationToken,
) -> Result<Outcome, TrainerError> {
    let started = Instant::now();
    let client = client.metered();
    let tuned = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(TrainerError::Cancelled),
        tuned = tune(&job, &client, &events) => tuned?,
    };
    let Tuned {
        mut headed,
        weights,
        classes,
        pixels,
        mut outcome,
    } = tuned;
    let (path, cancelled) = (job.out.clone(), cancel.clone());
    blocking(move || {
        notes::write(&mut headed, pixels.as_ref(), &classes);
        export::write(&headed.merge(&weights)?, &path, &cancelled)
    })
    .await?;
    outcome.bytes_received = client.bytes_received();
    outcome.seconds = started.elapsed().as_secs_f64();
    events(Event::Done {
        model: outcome.model.clone(),
        split: outcome.split.clone(),
        validation_accuracy: outcome.validation_accuracy,
        bytes_received: outcome.bytes_received,
        seconds: outcome.seconds,
    });
    Ok(outcome)
}

/// A job that has trained and has yet to write its model.
struct Tuned {
    headed: frostline_graph::Model,
    weights: Vec<(String, Tensor)>,
    classes: Vec<String>,
    pixels: Option<frostline_tensor::PixelSpec>,
    outcome: Outcome,
}

async fn tune(job: &Job, client: &HostClient, events: &Events) -> Result<Tuned, TrainerError> {
    let Prepared {
        dataset,
        headed,
        suffix,
        source,
        pixels,
    } = prepare(job, client, events).await?;
    let interrupt = Interrupt::new();
    let guard = interrupt.clone();
    let suffix = blocking(move || Suffix::open(suffix, &guard)).await?;
    let suffix = Dedicated::start(suffix, interrupt)?;
    let plan = FeedPlan {
        train: dataset.train.into(),
        validation: dataset.validation.into(),
        epochs: job.epochs,
        batch: job.batch,
        seed: job.seed,
        ahead: job.prefetch,
        memory_bytes: job.memory_bytes,
    };
    let split = source.split.clone();
    let bad = Arc::new(BadSamples::new(job.on_bad_sample, Arc::clone(events)));
    let fetcher = fetcher(
        source,
        job.request_samples,
        job.open_requests,
        job.threads,
        events,
    )?;
    let feed = Feed::start(plan.clone(), fetcher, client.clone(), Arc::clone(&bad))?;
    let mut run = Run {
        plan,
        feed,
        suffix,
        bad,
        events,
        split,
        learning_rate: job.learning_rate,
        step: 0,
    };
    let baseline = run.baseline().await?;
    let mut last = EpochResult {
        loss: f64::NAN,
        accuracy: baseline,
    };
    for epoch in 1..=job.epochs {
        last = run.epoch(epoch).await?;
    }
    let weights = run.suffix.run(|suffix| suffix.weights()).await?;
    let outcome = Outcome {
        model: job.out.clone(),
        classes: dataset.classes.clone(),
        split: run.split.clone(),
        baseline_accuracy: baseline,
        validation_accuracy: last.accuracy,
        loss: last.loss,
        bytes_received: 0,
        seconds: 0.0,
        skipped: run.bad.count(),
    };
    Ok(Tuned {
        headed,
        weights,
        classes: dataset.classes,
        pixels,
        outcome,
    })
}

/// A fetcher that decodes on as many threads as the engine has.
pub(crate) fn fetcher(
    source: Source,
    request_samples: usize,
    open_requests: usize,
    threads: usize,
    events: &Events,
) -> Result<Arc<Fetcher>, TrainerError> {
    let threads = crate::setup::session_options(frostline_engine::Device::Cpu, threads).threads;
    let decoders = DecodePool::start(threads).map_err(|source| TrainerError::Thread { source })?;
    let policy = RetryPolicy::default();
    Ok(Arc::new(Fetcher::new(
        source,
        request_samples,
        open_requests,
        policy,
        decoders,
        Arc::clone(events),
    )))
}

struct Run<'a> {
    plan: FeedPlan,
    feed: Feed,
    suffix: Dedicated<Suffix>,
    bad: Arc<BadSamples>,
    events: &'a Events,
    split: Split,
    learning_rate: f32,
    step: u64,
}

struct EpochResult {
    loss: f64,
    accuracy: f64,
}

impl Run<'_> {
    async fn baseline(&mut self) -> Result<f64, TrainerError> {
        let started = Instant::now();
        let (accuracy, bytes_received) = self.validate().await?;
        let seconds = started.elapsed().as_secs_f64();
        (self.events)(Event::Baseline {
            validation_accuracy: accuracy,
            bytes_received,
            seconds,
        });
        Ok(accuracy)
    }

    async fn epoch(&mut self, epoch: u32) -> Result<EpochResult, TrainerError> {
        let started = Instant::now();
        let loss = self.train(epoch).await?;
        let (accuracy, bytes_received) = self.validate().await?;
        (self.events)(Event::Epoch {
            epoch,
            loss,
            validation_accuracy: accuracy,
            bytes_received,
            seconds: started.elapsed().as_secs_f64(),
            split: self.split.clone(),
            skipped: self.bad.count(),
        });
        Ok(EpochResult { loss, accuracy })
    }

    /// Trains every batch of an epoch and returns the mean loss of its samples.
    async fn train(&mut self, epoch: u32) -> Result<f64, TrainerError> {
        let (mut total, mut samples) = (0.0, 0);
        for _ in 0..self.plan.batches(Part::Train) {
            let Batch { rows, labels, .. } = &mut self.feed.next().await?;
            let Some(rows) = rows.take() else { continue };
            let (labels, count) = (std::mem::take(labels), rows.rows()?);
            let loss = self.suffix.run(move |suffix| suffix.train(&rows, labels)).await?;
            self.step += 1;
            (self.events)(Event::Step {
                epoch,
                step: self.step,
                loss,
            });
            if !loss.is_finite() {
                let (step, learning_rate) = (self.step, self.learning_rate);
                return Err(TrainerError::Diverged {
                    step,
                    loss,
                    learning_rate,
                });
            }
            total += f64::from(loss) * count as f64;
            samples += count;
        }
        self.mean(total, samples, Part::Train)
    }

    /// Validates and returns the accuracy, and the bytes received for the epoch until now.
    async fn validate(&mut self) -> Result<(f64, u64), TrainerError> {
        let (mut right, mut samples, mut bytes) = (0, 0, 0);
        for _ in 0..self.plan.batches(Part::Validation) {
            let batch = &mut self.feed.next().await?;
            bytes = batch.epoch.bytes_received();
            let Some(rows) = batch.rows.take() else { continue };
            let labels = std::mem::take(&mut batch.labels);
            samples += labels.len();
            right += self
                .suffix
                .run(move |suffix| suffix.count_correct(&rows, &labels))
                .await?;
        }
        Ok((self.mean(right as f64, samples, Part::Validation)?, bytes))
    }

    fn mean(&self, total: f64, samples: usize, part: Part) -> Result<f64, TrainerError> {
        if samples == 0 {
            return Err(self.bad.nothing_left(part, self.plan.samples(part).len()));
        }
        Ok(total / samples as f64)
    }
}
