use super::finish::Tuned;
use super::training_loop::{JobContext, TrainingLoop};
use crate::checkpoint::{LockedRun, write_ending};
use crate::compute::blocking;
use crate::evaluation::evaluate_samples;
use crate::event::notices;
use crate::team::Team;
use crate::{Evaluation, EvaluationJob, Event, Events, Job, Outcome, TrainerError};
use frostline_client::{Hosts, Samples};
use frostline_graph::Model;
use frostline_job::folder::Ending;
use frostline_tensor::one_line;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Fine-tunes a model and writes it, with the help of one [`HostClient`](frostline_client::HostClient) or several [`Hosts`].
///
/// `events` is told what happens. When `cancel` is cancelled before the first step, the job ends at once and leaves nothing behind; later it ends
/// after the step under way and writes what it has: the model of the best epoch so far, or the current one before the first epoch ended. A job with a
/// [`RunFolder`](crate::RunFolder) writes a checkpoint then, as it does periodically and on failure, to resume from.
///
/// # Errors
/// [`TrainerError`]; no model is written then, but for [`TrainerError::Stopped`], and the best one of a job that diverged after epochs that
/// went well.
pub async fn train(
    job: Job,
    hosts: impl Into<Hosts>,
    events: Events,
    cancel: CancellationToken,
) -> Result<Outcome, TrainerError> {
    // On the heap: a job and what it waits for are large.
    Box::pin(run(job, hosts.into(), events, cancel)).await
}

async fn run(
    job: Job,
    hosts: Hosts,
    events: Events,
    cancel: CancellationToken,
) -> Result<Outcome, TrainerError> {
    let started = Instant::now();
    let mut job = job.checked().await?;
    job.team = job.team.as_ref().map(Team::afresh);
    let Some((folder, _kept)) = LockedRun::open_for(&job).await? else {
        let hosts = hosts.for_job(notices(&events));
        let context = JobContext {
            job: &job,
            hosts: &hosts,
            events: &events,
            cancel: &cancel,
        };
        return tune(context, None, started).await;
    };
    let (events, recorder) = folder.recorded(&events)?;
    let job = folder.with_recorded_split(job);
    let hosts = hosts.for_job(notices(&events));
    let context = JobContext {
        job: &job,
        hosts: &hosts,
        events: &events,
        cancel: &cancel,
    };
    let ended = tune(context, Some(folder), started).await;
    recorder.settle().await;
    if let Some(run) = &job.run {
        write_ending(&run.path, &ending(&ended));
    }
    ended
}

fn ending(ended: &Result<Outcome, TrainerError>) -> Ending {
    match ended {
        Ok(_) => Ending::Finished,
        Err(TrainerError::Cancelled | TrainerError::Stopped { .. }) => Ending::Interrupted,
        Err(error) => Ending::Failed {
            error: one_line(error),
        },
    }
}

async fn tune(
    context: JobContext<'_>,
    folder: Option<LockedRun>,
    started: Instant,
) -> Result<Outcome, TrainerError> {
    let JobContext {
        hosts,
        events,
        cancel,
        ..
    } = context;
    // On the heap: what prepares a job is large.
    let begun = Box::pin(TrainingLoop::start(context, folder));
    let training = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(TrainerError::Cancelled),
        training = begun => training?,
    };
    let Tuned {
        model,
        test,
        results,
        sharing,
        ended,
        mut outcome,
    } = training.run().await?;
    let (model, written) = blocking(move || model.write()).await?;
    let unwritten = unwritten(written, events);
    // A job that was told to end does so soon.
    if let Some(results) = results.filter(|_| !cancel.is_cancelled()) {
        results.write(hosts, events).await;
    }
    // Whoever does not want to wait has the model already.
    unless_cancelled(cancel, sharing.finish()).await;
    if let Some(error) = unwritten.or(ended) {
        return Err(error);
    }
    if !test.is_empty() {
        unless_cancelled(cancel, measure(&context, model, test)).await;
    }
    for (host, seconds) in hosts.stage_seconds() {
        events(Event::HostTime { host, seconds });
    }
    outcome.bytes_received = hosts.bytes_received();
    outcome.received.other = outcome.bytes_received.saturating_sub(outcome.received.total());
    outcome.seconds = started.elapsed().as_secs_f64();
    events(done(&outcome));
    Ok(outcome)
}

async fn unless_cancelled(cancel: &CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        () = work => {}
    }
}

/// Measures the written model with the test part. The job is done whatever becomes of that.
async fn measure(context: &JobContext<'_>, model: Model, test: Arc<Samples>) {
    let JobContext {
        job, hosts, events, ..
    } = context;
    let started = Instant::now();
    let samples = test.len();
    let evaluated = evaluate_samples(&EvaluationJob::of_tuned(job, model), test, hosts, events).await;
    events(match evaluated {
        Ok(Evaluation { quality, samples, .. }) => Event::Test {
            quality,
            samples,
            seconds: started.elapsed().as_secs_f64(),
        },
        Err(error) => Event::Warning {
            message: format!(
                "the {samples} test images were not measured: {error}; frostline eval --part test measures them"
            ),
        },
    });
}

/// Why the model is not where it is wanted, the first of the places that it was `written` to; of another one that is a warning.
fn unwritten(written: Vec<Result<(), TrainerError>>, events: &Events) -> Option<TrainerError> {
    let mut written = written.into_iter();
    let wanted = written.next().and_then(Result::err);
    for error in written.filter_map(Result::err) {
        let message = error.to_string();
        events(Event::Warning { message });
    }
    wanted
}

fn done(outcome: &Outcome) -> Event {
    Event::Done {
        model: outcome.model.clone(),
        split: outcome.split.clone(),
        epoch: outcome.epoch,
        validation: outcome.validation,
        bytes_received: outcome.bytes_received,
        received: outcome.received,
        seconds: outcome.seconds,
    }
}
