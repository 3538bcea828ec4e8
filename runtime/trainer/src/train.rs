use crate::client::Waits;
use crate::compute::{Dedicated, Suffix};
use crate::pipeline::{BadSamples, Feed, FeedPlan, Fetcher, Part, Source, Steering};
use crate::planner::{Iteration, Planner};
use crate::retry::RetryPolicy;
use crate::setup::{Prepared, blocking, prepare};
use crate::sources::Sources;
use crate::{Event, Events, Hosts, Job, Outcome, Policy, TrainerError, export, notes};
use frostline_engine::Interrupt;
use frostline_images::DecodePool;
use frostline_tensor::Tensor;
use frostline_wire::{Encoding, Split};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Fine-tunes a model and writes it, with the help of one [`crate::HostClient`] or several [`Hosts`].
///
/// `events` is told what happens. When `cancel` is cancelled the job ends soon and leaves nothing behind.
///
/// # Errors
/// [`TrainerError`]; no model is written then.
pub async fn train(
    job: Job,
    hosts: impl Into<Hosts>,
    events: Events,
    cancel: CancellationToken,
) -> Result<Outcome, TrainerError> {
    let started = Instant::now();
    let hosts = hosts.into().for_job(&events, Waits::default());
    let tuned = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(TrainerError::Cancelled),
        tuned = tune(&job, &hosts, &events) => tuned?,
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
    outcome.bytes_received = hosts.bytes_received();
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

async fn tune(job: &Job, hosts: &Hosts, events: &Events) -> Result<Tuned, TrainerError> {
    let prepared = prepare(job, false, hosts, events).await?;
    let (headed, classes) = (prepared.headed.clone(), prepared.classes.clone());
    let pixels = prepared.sources.pixels;
    let first = prepared.sources.at(
        &prepared.chosen.split,
        prepared.chosen.encoding,
        prepared.chosen.request_samples,
    )?;
    let steering = Steering::towards(first);
    let mut run = Run::start(job, prepared, steering, hosts, events).await?;
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
        classes: classes.clone(),
        split: run.steering.now().split.clone(),
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
        classes,
        pixels,
        outcome,
    })
}

/// Training steps at given splits, one leg after the other in one job, with no validation and no model in the end: a rehearsal that
/// shows what each takes. Ends after the last leg; a job whose data are fewer goes over them again.
///
/// # Errors
/// As [`train`]; [`TrainerError::Setting`] without legs.
pub async fn rehearse(
    mut job: Job,
    legs: Vec<Leg>,
    hosts: impl Into<Hosts>,
    events: Events,
    cancel: CancellationToken,
) -> Result<(), TrainerError> {
    let hosts = hosts.into().for_job(&events, Waits::default());
    let steps: u64 = legs.iter().map(|leg| leg.steps).sum();
    let Some(first) = legs.first().filter(|_| steps > 0) else {
        return Err(TrainerError::Setting {
            what: "the number of steps to rehearse",
            value: "0".to_owned(),
            must: "it must be at least 1",
        });
    };
    // A leg without the host's model must not decide for the others.
    let served = legs.iter().find(|leg| leg.split != Split::None).unwrap_or(first);
    job.split = Policy::Fixed(served.split.clone());
    let rehearsal = async {
        let mut prepared = prepare(&job, false, &hosts, &events).await?;
        prepared.feed.validation = Arc::new([]);
        let batches = prepared.feed.batches(Part::Train).max(1) as u64;
        prepared.feed.epochs = u32::try_from(steps.div_ceil(batches)).unwrap_or(u32::MAX);
        let source = |leg: &Leg| {
            let source = prepared.sources.at(&leg.split, leg.encoding, job.request_samples);
            source.map(Arc::new)
        };
        let course = legs
            .iter()
            .map(|leg| Ok((leg.steps, source(leg)?)))
            .collect::<Result<VecDeque<_>, TrainerError>>()?;
        let steering = Steering::along(source(first)?, course);
        let mut run = Run::start(&job, prepared, steering, &hosts, &events).await?;
        for leg in &legs {
            let split = leg.split.clone();
            run.suffix.run(move |suffix| suffix.expect(&split)).await?;
        }
        for _ in 0..steps {
            run.step(1).await?;
        }
        Ok(())
    };
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(TrainerError::Cancelled),
        outcome = rehearsal => outcome,
    }
}

/// Some steps of a rehearsal.
#[derive(Debug, Clone, PartialEq)]
pub struct Leg {
    /// Where they are divided.
    pub split: Split,
    /// How their activations travel.
    pub encoding: Encoding,
    /// How many.
    pub steps: u64,
}

/// A fetcher that decodes on as many threads as the engine has.
pub(crate) fn fetcher(
    open_requests: usize,
    threads: usize,
    events: &Events,
) -> Result<Arc<Fetcher>, TrainerError> {
    let threads = crate::setup::session_options(frostline_engine::Device::Cpu, threads).threads;
    let decoders = DecodePool::start(threads).map_err(|source| TrainerError::Thread { source })?;
    let policy = RetryPolicy::default();
    Ok(Arc::new(Fetcher::new(
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
    steering: Arc<Steering>,
    sources: Sources,
    planner: Option<Planner>,
    learning_rate: f32,
    step: u64,
}

struct EpochResult {
    loss: f64,
    accuracy: f64,
}

impl<'a> Run<'a> {
    /// Opens the suffix and begins to fetch.
    async fn start(
        job: &Job,
        prepared: Prepared,
        steering: Steering,
        hosts: &Hosts,
        events: &'a Events,
    ) -> Result<Self, TrainerError> {
        let Prepared {
            suffix,
            feed: plan,
            sources,
            planner,
            ..
        } = prepared;
        let interrupt = Interrupt::new();
        let guard = interrupt.clone();
        let split = steering.now().split.clone();
        let open = move || {
            let mut suffix = Suffix::open(suffix, &guard)?;
            suffix.expect(&split)?;
            Ok(suffix)
        };
        let suffix = Dedicated::start(blocking(open).await?, interrupt)?;
        let bad = Arc::new(BadSamples::new(job.on_bad_sample, Arc::clone(events)));
        let steering = Arc::new(steering);
        let fetcher = fetcher(job.open_requests, job.threads, events)?;
        let feed = Feed::start(
            plan.clone(),
            fetcher,
            Arc::clone(&steering),
            hosts.clone(),
            Arc::clone(&bad),
        )?;
        Ok(Self {
            plan,
            feed,
            suffix,
            bad,
            events,
            steering,
            sources,
            planner,
            learning_rate: job.learning_rate,
            step: 0,
        })
    }

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
            split: self.steering.now().split.clone(),
            skipped: self.bad.count(),
        });
        Ok(EpochResult { loss, accuracy })
    }

    /// Trains every batch of an epoch and returns the mean loss of its samples.
    async fn train(&mut self, epoch: u32) -> Result<f64, TrainerError> {
        let (mut total, mut samples) = (0.0, 0);
        for _ in 0..self.plan.batches(Part::Train) {
            let (loss, count) = self.step(epoch).await?;
            total += f64::from(loss) * count as f64;
            samples += count;
        }
        self.mean(total, samples, Part::Train)
    }

    /// Trains the next batch and returns its mean loss and its samples, 0 when all of them are bad.
    async fn step(&mut self, epoch: u32) -> Result<(f32, usize), TrainerError> {
        let asked = Instant::now();
        let batch = &mut self.feed.next().await?;
        let Some(rows) = batch.rows.take() else {
            return Ok((0.0, 0));
        };
        let waited = asked.elapsed();
        let (labels, count) = (std::mem::take(&mut batch.labels), rows.rows()?);
        let source = Arc::clone(&batch.source);
        let split = source.split.clone();
        let work = move |suffix: &mut Suffix| suffix.train(&split, &rows, labels);
        let loss = self.suffix.run(work).await?;
        self.step += 1;
        (self.events)(Event::Step {
            epoch,
            step: self.step,
            loss,
            split: source.split.clone(),
        });
        if !loss.is_finite() {
            let (step, learning_rate) = (self.step, self.learning_rate);
            return Err(TrainerError::Diverged {
                step,
                loss,
                learning_rate,
            });
        }
        let iteration = Iteration {
            waited: waited.as_secs_f64(),
            computed: asked.elapsed().saturating_sub(waited).as_secs_f64(),
            samples: count,
            bytes: batch.transfer.bytes,
            on_host: batch.transfer.on_host(),
        };
        self.reconsider(&source, &iteration).await?;
        Ok((loss, count))
    }

    /// Shows an iteration to the planner, and goes on from another split if it says so.
    async fn reconsider(&mut self, source: &Source, iteration: &Iteration) -> Result<(), TrainerError> {
        let steps = self.plan.batches(Part::Train) as u64 * u64::from(self.plan.epochs);
        let left = steps.saturating_sub(self.step);
        let present = self.steering.now();
        let Some(planner) = self.planner.as_mut() else {
            return Ok(());
        };
        // Batches asked for before a change say nothing about what is used now.
        if source.split != present.split {
            return Ok(());
        }
        let Some(change) = planner.saw(iteration, left) else {
            return Ok(());
        };
        let next = self
            .sources
            .at(&change.to.split, change.to.encoding, change.request_samples)?;
        (self.events)(Event::Replan {
            step: self.step,
            from: present.split.clone(),
            to: next.split.clone(),
            encoding: next.encoding,
            reason: change.reason,
        });
        planner.start(change.to);
        let split = next.split.clone();
        self.steering.turn(Arc::new(next));
        self.suffix.run(move |suffix| suffix.expect(&split)).await
    }

    /// Validates and returns the accuracy, and the bytes received for the epoch until now.
    async fn validate(&mut self) -> Result<(f64, u64), TrainerError> {
        let (mut right, mut samples, mut bytes) = (0, 0, 0);
        for _ in 0..self.plan.batches(Part::Validation) {
            let batch = &mut self.feed.next().await?;
            bytes = batch.epoch.bytes_received();
            let Some(rows) = batch.rows.take() else { continue };
            let (split, labels) = (batch.source.split.clone(), std::mem::take(&mut batch.labels));
            samples += labels.len();
            right += self
                .suffix
                .run(move |suffix| suffix.count_correct(&split, &rows, &labels))
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
