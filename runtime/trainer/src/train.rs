use crate::event::notices;
use crate::notes::{Input, TrainedWith};
use crate::pipeline::Steering;
use crate::run::{Best, EpochResult, Run, RunParts, open_suffix};
use crate::setup::{blocking, prepare};
use crate::sources::Sources;
use crate::{Event, Events, Job, Outcome, Received, TrainerError, export, notes};
use frostline_client::{Hosts, Waits};
use frostline_graph::Model;
use frostline_tensor::Tensor;
use frostline_wire::{Activation, Description, ServedCut, Split};
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
    let hosts = hosts.into().for_job(notices(&events), Waits::default());
    let tuned = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(TrainerError::Cancelled),
        tuned = tune(&job, &hosts, &events) => tuned?,
    };
    let Tuned {
        mut headed,
        weights,
        input,
        mut outcome,
        mut received,
        diverged,
    } = tuned;
    let (path, cancelled, classes) = (job.out.clone(), cancel.clone(), outcome.classes.clone());
    blocking(move || {
        notes::write(&mut headed, &input, &classes);
        export::write(&headed.merge(&weights)?, &path, &cancelled)
    })
    .await?;
    if let Some(diverged) = diverged {
        return Err(diverged);
    }
    outcome.bytes_received = hosts.bytes_received();
    received.other = outcome.bytes_received.saturating_sub(received.total());
    outcome.received = received;
    outcome.seconds = started.elapsed().as_secs_f64();
    events(Event::Done {
        model: outcome.model.clone(),
        split: outcome.split.clone(),
        validation_accuracy: outcome.validation_accuracy,
        bytes_received: outcome.bytes_received,
        received,
        seconds: outcome.seconds,
    });
    Ok(outcome)
}

/// A job that has trained and has yet to write its model.
struct Tuned {
    headed: Model,
    weights: Vec<(String, Tensor)>,
    input: Input,
    outcome: Outcome,
    received: Received,
    /// What ended the job before its time, though there are weights to keep.
    diverged: Option<TrainerError>,
}

async fn tune(job: &Job, hosts: &Hosts, events: &Events) -> Result<Tuned, TrainerError> {
    let prepared = prepare(job, false, hosts, events).await?;
    let (headed, classes) = (prepared.headed.clone(), prepared.classes.clone());
    let (sources, description) = (Arc::clone(&prepared.sources), prepared.description.clone());
    let (listed, measuring) = (prepared.listed, prepared.measuring.clone());
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
        watch: prepared.watch,
    };
    let mut run = Run::start(job, parts, suffix, hosts, events)?;
    let baseline = run.baseline().await?;
    let mut last = EpochResult {
        loss: f64::NAN,
        accuracy: baseline,
    };
    let (mut diverged, mut kept) = (None, None);
    for epoch in 1..=job.epochs {
        match run.epoch(epoch).await {
            Ok(ended) => last = ended,
            Err(error) => {
                let (error, best) = keep(job, error, run.take_best())?;
                (diverged, kept) = (Some(error), Some(best.weights));
                break;
            }
        }
    }
    let weights = match kept {
        Some(weights) => weights,
        None => run.suffix.run(|suffix| suffix.weights()).await?,
    };
    let split = run.steering.now().split.clone();
    let input = input(job, &sources, &description, &split);
    let outcome = Outcome {
        model: job.out.clone(),
        classes,
        split,
        baseline_accuracy: baseline,
        validation_accuracy: last.accuracy,
        loss: last.loss,
        bytes_received: 0,
        received: Received::default(),
        seconds: 0.0,
        skipped: run.bad.count(),
    };
    let received = Received {
        listing: listed,
        measuring: measuring.bytes_received(),
        ..run.received()
    };
    Ok(Tuned {
        headed,
        weights,
        input,
        outcome,
        received,
        diverged,
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
    let (out, percent) = (job.out.display(), best.accuracy * 100.0);
    let Best { epoch, .. } = best;
    *kept = Some(format!(
        "the model after epoch {epoch}, the best so far (validation accuracy {percent:.1} %), was written to {out}"
    ));
    Ok((error, best))
}

/// How the rows that the model was trained on were made: by a recipe, unless only the guest can make them again.
fn input(job: &Job, sources: &Sources, description: &Description, split: &Split) -> Input {
    let own_rows = |served: &ServedCut| {
        matches!(split, Split::Cut(name) if *name == served.name)
            && matches!(served.activation, Activation::Own(_))
    };
    match (&sources.pixels, &sources.guest) {
        (Some(spec), _) if !description.cuts.iter().any(own_rows) => Input::Pixels(*spec),
        (_, guest) => Input::Guest(TrainedWith {
            guest: job.guest.name.clone(),
            sha256: guest.as_ref().map(|pin| pin.sha256.clone()).unwrap_or_default(),
            parameters: sources.parameters.clone(),
            freeze: job.freeze.clone(),
            split: split.clone(),
        }),
    }
}
