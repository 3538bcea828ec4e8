use crate::compute::{Suffix, blocking};
use crate::event::notices;
use crate::notes::Input;
use crate::pipeline::{FeedPlan, Steering};
use crate::run::{Best, EpochResult, Run, RunParts};
use crate::setup::{Prepared, prepare, unfreeze};
use crate::team::{Sharing, Team};
use crate::unfreeze::Phase;
use crate::{Event, Events, Job, Outcome, Quality, Received, TrainerError, export, notes};
use frostline_client::{Hosts, Task};
use frostline_graph::Model;
use frostline_tensor::Tensor;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Fine-tunes a model and writes it, with the help of one [`HostClient`](frostline_client::HostClient) or several [`Hosts`].
///
/// `events` is told what happens. When `cancel` is cancelled the job ends soon and leaves nothing behind.
///
/// # Errors
/// [`TrainerError`]; no model is written then, but for the best one of a job that diverged after epochs that went well.
pub async fn train(
    job: Job,
    hosts: impl Into<Hosts>,
    events: Events,
    cancel: CancellationToken,
) -> Result<Outcome, TrainerError> {
    let started = Instant::now();
    let hosts = hosts.into().for_job(notices(&events));
    let tuned = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(TrainerError::Cancelled),
        tuned = tune(job, &hosts, &events) => tuned?,
    };
    let Tuned {
        out,
        mut headed,
        input,
        task,
        trained,
        sharing,
        mut outcome,
    } = tuned;
    let classes = outcome.classes.clone();
    let stop = cancel.clone();
    blocking(move || {
        notes::write(&mut headed, &input, task, &classes);
        export::write(&headed.merge(&trained.weights)?, &out, &cancel)
    })
    .await?;
    // Whoever does not want to wait has the model already.
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = sharing.finish() => {}
    }
    if let Some(diverged) = trained.diverged {
        return Err(diverged);
    }
    outcome.bytes_received = hosts.bytes_received();
    outcome.received.other = outcome.bytes_received.saturating_sub(outcome.received.total());
    outcome.seconds = started.elapsed().as_secs_f64();
    events(done(&outcome));
    Ok(outcome)
}

fn done(outcome: &Outcome) -> Event {
    Event::Done {
        model: outcome.model.clone(),
        split: outcome.split.clone(),
        validation: outcome.validation,
        bytes_received: outcome.bytes_received,
        received: outcome.received,
        seconds: outcome.seconds,
    }
}

/// A job that has trained and has yet to write its model.
struct Tuned {
    out: PathBuf,
    headed: Model,
    input: Input,
    task: Task,
    trained: Trained,
    sharing: Sharing,
    /// Without what is known only in the end.
    outcome: Outcome,
}

/// What the epochs came to.
struct Trained {
    last: EpochResult,
    weights: Vec<(String, Tensor)>,
    /// What ended the job before its time, though there are weights to keep.
    diverged: Option<TrainerError>,
}

async fn tune(job: Job, hosts: &Hosts, events: &Events) -> Result<Tuned, TrainerError> {
    let mut job = job.checked().await?;
    job.team = job.team.as_ref().map(Team::afresh);
    let job = &job;
    let mut prepared = prepare(job, false, hosts, events).await?;
    let phases = job.phases();
    let phase = phases.first().ok_or(TrainerError::Ended { part: "plan" })?;
    let split = prepared.chosen.split.clone();
    let awaited = (!prepared.all_kept).then_some(&split);
    let suffix = Suffix::start(prepared.suffix.clone(), awaited).await?;
    let mut run = Run::start(job, parts(&mut prepared, 0, phase.last)?, suffix, hosts, events)?;
    let baseline = run.baseline().await?;
    let mut course = Course {
        job,
        hosts,
        events,
        prepared,
        run,
        sharing: Sharing::new(job.team.as_ref(), events),
    };
    let trained = course.epochs(&phases, baseline).await?;
    let Course {
        prepared,
        run,
        sharing,
        ..
    } = course;
    let split = run.steering.now().split.clone();
    Ok(Tuned {
        out: job.out.clone(),
        input: prepared.offer.input(&job.guest.name, &split),
        task: prepared.data.feed.task,
        outcome: Outcome {
            model: job.out.clone(),
            classes: prepared.data.classes,
            split,
            baseline,
            validation: trained.last.quality,
            loss: trained.last.loss,
            bytes_received: 0,
            received: Received {
                listing: prepared.data.listed,
                measuring: prepared.measuring.bytes_received(),
                ..run.received()
            },
            seconds: 0.0,
            skipped: run.bad.count(),
        },
        headed: prepared.network.headed,
        trained,
        sharing,
    })
}

/// What a run is made of for the epochs `first` to `last`.
fn parts(prepared: &mut Prepared, first: u32, last: u32) -> Result<RunParts, TrainerError> {
    let chosen = &prepared.chosen;
    let source = prepared
        .offer
        .at(&chosen.split, chosen.encoding, chosen.flow.request_samples)?;
    Ok(RunParts {
        feed: FeedPlan {
            first,
            epochs: last,
            ..prepared.data.feed.clone()
        },
        steering: Steering::towards(source),
        flow: chosen.flow,
        offer: Arc::clone(&prepared.offer),
        watch: prepared.watch.take(),
    })
}

/// A job on its way through its phases.
struct Course<'a> {
    job: &'a Job,
    hosts: &'a Hosts,
    events: &'a Events,
    prepared: Prepared,
    run: Run,
    sharing: Sharing,
}

impl Course<'_> {
    /// Trains all epochs, or those before it diverges.
    async fn epochs(&mut self, phases: &[Phase], baseline: Quality) -> Result<Trained, TrainerError> {
        let mut last = EpochResult {
            loss: f64::NAN,
            quality: baseline,
        };
        for phase in phases {
            if phase.first > 1 {
                self.unfreeze(phase).await?;
            }
            for epoch in phase.first..=phase.last {
                match self.run.epoch(epoch).await {
                    Ok(ended) => {
                        last = ended;
                        // The first epoch makes nearly all rows; the last one sees what was passed over.
                        if epoch == phase.first || epoch == phase.last {
                            let features = self.prepared.data.feed.features.as_ref();
                            self.sharing.begin(features.map(|features| features.kept()));
                        }
                    }
                    Err(error) => {
                        let (error, best) = keep(self.job, error, self.run.take_best())?;
                        return Ok(Trained {
                            last,
                            weights: best.weights,
                            diverged: Some(error),
                        });
                    }
                }
            }
        }
        Ok(Trained {
            last,
            weights: self.run.suffix.run(|suffix| suffix.weights()).await?,
            diverged: None,
        })
    }

    /// Goes on with a phase that trains more.
    async fn unfreeze(&mut self, phase: &Phase) -> Result<(), TrainerError> {
        (self.events)(Event::Unfreeze {
            epoch: phase.first,
            freeze: phase.freeze.clone(),
        });
        let weights = self.run.suffix.run(|suffix| suffix.weights()).await?;
        let split = self.run.steering.now().split.clone();
        let job = self.job.in_phase(phase);
        let prepared = unfreeze(&job, &self.prepared, &split, weights, self.hosts, self.events);
        // On the heap: what plans is large, and lies deep here.
        self.prepared = Box::pin(prepared).await?;
        let layers = self.prepared.suffix.clone();
        let parts = parts(&mut self.prepared, phase.first, phase.last)?;
        self.run.unfreeze(parts, layers).await
    }
}

/// What to write where training diverged after epochs that went well.
///
/// # Errors
/// `error` where there is nothing, or something else went wrong.
fn keep(
    job: &Job,
    mut error: TrainerError,
    best: Option<Best>,
) -> Result<(TrainerError, Best), TrainerError> {
    let (TrainerError::Diverged { kept, .. }, Some(best)) = (&mut error, best) else {
        return Err(error);
    };
    let (out, Best { epoch, quality, .. }) = (job.out.display(), &best);
    *kept = Some(format!(
        "the model after epoch {epoch}, the best so far (validation {quality}), was written to {out}"
    ));
    Ok((error, best))
}
