use crate::client::Waits;
use crate::pipeline::Steering;
use crate::run::{EpochResult, Run, RunParts, open_suffix};
use crate::setup::{blocking, prepare};
use crate::{Event, Events, Hosts, Job, Outcome, TrainerError, export, notes};
use frostline_tensor::Tensor;
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
        prepared.chosen.flow.request_samples,
    )?;
    let suffix = open_suffix(prepared.suffix, &prepared.chosen.split).await?;
    let parts = RunParts {
        feed: prepared.feed,
        steering: Steering::towards(first),
        flow: prepared.chosen.flow,
        sources: prepared.sources,
        planner: prepared.planner,
    };
    let mut run = Run::start(job, parts, suffix, hosts, events)?;
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
