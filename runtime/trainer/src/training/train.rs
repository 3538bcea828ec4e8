use super::context::JobContext;
use super::finish::Tuned;
use super::training_loop::TrainingLoop;
use crate::checkpoint::{LockedRun, write_ending};
use crate::evaluation::evaluate_samples;
use crate::event::{notices, warn};
use crate::{Evaluation, EvaluationJob, Event, Events, Job, JobResult, TrainerError, blocking};
use frostline_client::{Hosts, Samples};
use frostline_graph::Model;
use frostline_job::folder::FinalState;
use frostline_tensor::one_line;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Fine-tunes a model and writes it, using a single [`HostClient`](frostline_client::HostClient) or several
/// [`Hosts`].
///
/// `events` receives the progress of the job. If `cancel` is cancelled before the first step, the job ends
/// immediately without a model. After that, the job finishes the current step and writes the model of the
/// best epoch so far, or the current model if no epoch has ended, as on failure. A job with a
/// [`RunFolder`](crate::RunFolder) then writes a checkpoint to resume from, as it does periodically.
///
/// # Errors
/// Returns [`TrainerError`] if the job fails. No model is written in this case, except with
/// [`TrainerError::Stopped`], [`TrainerError::Failed`], and [`TrainerError::Diverged`] if an epoch ended
/// before the divergence.
pub async fn train(
    job: Job,
    hosts: impl Into<Hosts>,
    events: Events,
    cancel: CancellationToken,
) -> Result<JobResult, TrainerError> {
    // Boxed, because the future of a job is large.
    Box::pin(run(job, hosts.into(), events, cancel)).await
}

async fn run(
    job: Job,
    hosts: Hosts,
    mut events: Events,
    cancel: CancellationToken,
) -> Result<JobResult, TrainerError> {
    let started = Instant::now();
    let mut job = job.checked().await?;
    let (folder, _kept) = LockedRun::open_for(&job).await?.unzip();
    let mut recorder = None;
    if let Some(folder) = &folder {
        let (recorded, writer) = folder.recorded(&events)?;
        events = recorded;
        recorder = Some(writer);
        job = folder.with_recorded_split(job);
    }
    let hosts = hosts.for_job(notices(&events));
    let context = JobContext {
        job: &job,
        hosts: &hosts,
        events: &events,
        cancel: &cancel,
    };
    let ended = tune(context, folder, started).await;
    if let (Some(recorder), Some(run)) = (recorder, &job.run) {
        recorder.settle().await;
        write_ending(&run.path, &ending(&ended));
    }
    ended
}

fn ending(ended: &Result<JobResult, TrainerError>) -> FinalState {
    match ended {
        Ok(_) => FinalState::Finished,
        Err(TrainerError::Cancelled | TrainerError::Stopped { .. }) => FinalState::Interrupted,
        Err(error) => FinalState::Failed {
            error: one_line(error),
        },
    }
}

async fn tune(
    context: JobContext<'_>,
    folder: Option<LockedRun>,
    started: Instant,
) -> Result<JobResult, TrainerError> {
    let JobContext { hosts, events, .. } = context;
    // Boxed, because the future of the preparation is large.
    let begun = Box::pin(TrainingLoop::start(context, folder));
    let training = context.cancel.run_until_cancelled(begun).await;
    let training = training.unwrap_or(Err(TrainerError::Cancelled))?;
    let Tuned {
        model,
        test,
        results,
        ended,
        mut outcome,
    } = training.run().await?;
    let (model, unwritten) = match blocking(move || model.write()).await {
        Ok((model, written)) => (model, first_write_error(written, events)),
        Err(error) => return Err(unwritten_model(ended, error, events)),
    };
    // Hosts may no longer answer after a failure.
    let is_failed = matches!(ended, Some(TrainerError::Failed { .. }));
    // Skip the results if the job is cancelled.
    if let Some(results) = results.filter(|_| !context.cancel.is_cancelled() && !is_failed) {
        results.write(hosts, events).await;
    }
    if let Some(error) = unwritten {
        return Err(unwritten_model(ended, error, events));
    }
    if let Some(error) = ended {
        return Err(error);
    }
    if !test.is_empty() {
        let measured = measure(&context, model, test);
        context.cancel.run_until_cancelled(measured).await;
    }
    for (host, seconds) in hosts.stage_seconds() {
        events(Event::HostTime { host, seconds });
    }
    outcome.bytes_received = hosts.bytes_received();
    outcome.received.other = outcome.bytes_received.saturating_sub(outcome.received.total());
    outcome.seconds = started.elapsed().as_secs_f64();
    events(Event::Done(outcome.clone()));
    Ok(outcome)
}

/// Measures the written model on the test part. A failure is only a warning, because the job is done.
async fn measure(context: &JobContext<'_>, model: Model, test: Arc<Samples>) {
    let started = Instant::now();
    let samples = test.len();
    let job = EvaluationJob::of_tuned(context.job, model);
    let evaluated = evaluate_samples(&job, test, context.hosts, context.events).await;
    (context.events)(match evaluated {
        Ok(Evaluation { quality, samples, .. }) => Event::Test {
            quality,
            samples,
            seconds: started.elapsed().as_secs_f64(),
        },
        Err(error) => Event::Warning {
            message: format!(
                "cannot evaluate the {samples} test images: {error}; evaluate the written model to measure them"
            ),
        },
    });
}

/// Returns the error of a job whose model could not be written because of `error`. If the job had failed
/// before, this failure is returned and `error` becomes a warning.
fn unwritten_model(ended: Option<TrainerError>, error: TrainerError, events: &Events) -> TrainerError {
    match ended {
        Some(TrainerError::Failed { source, .. }) => {
            warn(events, error.to_string());
            *source
        }
        _ => error,
    }
}

/// Returns the error of the first target. Errors of other targets become warnings.
fn first_write_error(written: Vec<Result<(), TrainerError>>, events: &Events) -> Option<TrainerError> {
    let mut written = written.into_iter();
    let wanted = written.next().and_then(Result::err);
    for error in written.filter_map(Result::err) {
        warn(events, error.to_string());
    }
    wanted
}
