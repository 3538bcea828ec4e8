use crate::compute::{Suffix, blocking};
use crate::event::notices;
use crate::notes::Input;
use crate::pipeline::Steering;
use crate::run::{Best, EpochResult, Run, RunParts};
use crate::setup::prepare;
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
        mut outcome,
    } = tuned;
    let classes = outcome.classes.clone();
    blocking(move || {
        notes::write(&mut headed, &input, task, &classes);
        export::write(&headed.merge(&trained.weights)?, &out, &cancel)
    })
    .await?;
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
    let job = &job.checked().await?;
    let prepared = prepare(job, false, hosts, events).await?;
    let (offer, chosen) = (prepared.offer, prepared.chosen);
    let first = offer.at(&chosen.split, chosen.encoding, chosen.flow.request_samples)?;
    let parts = RunParts {
        feed: prepared.feed,
        steering: Steering::towards(first),
        flow: chosen.flow,
        offer: Arc::clone(&offer),
        watch: prepared.watch,
    };
    let suffix = Suffix::start(prepared.suffix, &chosen.split).await?;
    let mut run = Run::start(job, parts, suffix, hosts, events)?;
    let baseline = run.baseline().await?;
    let trained = epochs(job, &mut run, baseline).await?;
    let split = run.steering.now().split.clone();
    Ok(Tuned {
        out: job.out.clone(),
        headed: prepared.headed,
        input: offer.input(&job.guest.name, &split),
        task: prepared.task,
        outcome: Outcome {
            model: job.out.clone(),
            classes: prepared.classes,
            split,
            baseline,
            validation: trained.last.quality,
            loss: trained.last.loss,
            bytes_received: 0,
            received: Received {
                listing: prepared.listed,
                measuring: prepared.measuring.bytes_received(),
                ..run.received()
            },
            seconds: 0.0,
            skipped: run.bad.count(),
        },
        trained,
    })
}

/// Trains all epochs, or those before it diverges.
async fn epochs(job: &Job, run: &mut Run, baseline: Quality) -> Result<Trained, TrainerError> {
    let mut last = EpochResult {
        loss: f64::NAN,
        quality: baseline,
    };
    for epoch in 1..=job.recipe.epochs {
        match run.epoch(epoch).await {
            Ok(ended) => last = ended,
            Err(error) => {
                let (error, best) = keep(job, error, run.take_best())?;
                return Ok(Trained {
                    last,
                    weights: best.weights,
                    diverged: Some(error),
                });
            }
        }
    }
    Ok(Trained {
        last,
        weights: run.suffix.run(|suffix| suffix.weights()).await?,
        diverged: None,
    })
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
