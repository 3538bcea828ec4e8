//! `frostline train`, which trains a new job, resumes a run, or starts a sweep.

use crate::arguments::{InterfaceFlags, JobFlags, TrainFlags};
use crate::hints::{CommandLine, Hinted, NextStep, for_job};
use crate::host::data_url;
use crate::output::print_json;
use crate::sweep_definition::SweepDefinition;
use crate::training::{connect, train_with_events};
use crate::{results, runs, sweep};
use anyhow::{Context, Result, anyhow};
use frostline_graph::Model;
use frostline_job::flags::missing;
use frostline_job::{Class, JobSpec, NewHead, PixelFlags, folder};
use frostline_trainer::{Job, Recipe, RunFolder, TrainerError, read_pixels_beside};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(flags: TrainFlags, json: bool, stop: &CancellationToken) -> Result<()> {
    let resumed = runs::resumed(&flags)?;
    if let Some(run) = &resumed
        && let Some((folder, sweep)) = SweepDefinition::find(run)?
    {
        return resume_sweep(&flags, &folder, sweep, json, stop).await;
    }
    let recorded = resumed
        .as_deref()
        .map(frostline_trainer::recorded_job)
        .transpose()?;
    let mut job = Job::open(spec(&flags.job, recorded)?)?;
    // The run folder is created after the job has been checked.
    job.run = Some(RunFolder::new(&flags.runs));
    let mut job = job.checked().await?;
    if flags.dry_run {
        return show(&job, json);
    }
    if !flags.sweep.is_empty() {
        return sweep::run(&flags, job, json, stop).await;
    }
    let is_new = resumed.is_none() && flags.resume.is_none();
    let folder = match resumed {
        Some(run) => RunFolder::resumed(run),
        None => runs::folder(&flags, &job)?,
    };
    let run = folder.path.clone();
    job.run = Some(folder);
    let result = train_job(job, &run, json, stop).await;
    if result.is_err() && is_new && !frostline_trainer::can_resume(&run) && !run.join(folder::MODEL).exists()
    {
        // The job failed before the first training step, so the folder is useless.
        let _ = std::fs::remove_dir_all(&run);
    }
    result
}

/// Resumes the sweep in `folder`, or prints its job.
async fn resume_sweep(
    flags: &TrainFlags,
    folder: &Path,
    sweep: SweepDefinition,
    json: bool,
    stop: &CancellationToken,
) -> Result<()> {
    let mut job = Job::open(spec(&flags.job, Some(sweep.job.clone()))?)?;
    // Each variant writes its model to a run in this folder.
    job.run = Some(RunFolder::new(folder));
    let job = job.checked().await?;
    sweep.check(&job, folder)?;
    if flags.dry_run {
        return show(&job, json);
    }
    sweep::resume(folder, &sweep.sweep, job, json, stop).await
}

/// Trains the job in the folder `run` and writes the report.
async fn train_job(mut job: Job, run: &Path, json: bool, stop: &CancellationToken) -> Result<()> {
    let spec = job.spec.recorded();
    let connection = connect(&mut job).await?;
    let result = train_with_events(job, &connection, json, stop).await;
    connection.close().await;
    if matches!(
        result,
        Ok(_)
            | Err(TrainerError::Stopped { .. } | TrainerError::Failed { .. } | TrainerError::Diverged { .. })
    ) {
        match results::write(run) {
            Ok(report) if !json => say!("report     {}", report.display()),
            Ok(_) => {}
            Err(error) => tracing::warn!("cannot write the report of the run: {error}"),
        }
    }
    result.map(drop).map_err(|error| failed(error, run, &spec))
}

/// Combines settings from flags, from files, from the `recorded` run and from defaults, in this order of
/// precedence.
pub(crate) fn spec(flags: &JobFlags, recorded: Option<JobSpec>) -> Result<JobSpec> {
    let mut spec = match &flags.file {
        Some(file) => JobSpec::read(file)?,
        None => recorded.unwrap_or_default(),
    };
    if let Some(file) = &flags.recipe {
        spec.recipe = Recipe::read(file).context("cannot use the recipe")?;
    }
    if let Some(run) = &flags.init_from {
        (spec.model, spec.head) = (Some(model_of(run)?), NewHead::Keep);
    }
    flags.given.overlay(&mut spec)?;
    // These hashes are only valid for the recorded run.
    (spec.model_sha256, spec.guest_sha256) = (None, None);
    if spec.model.is_none() {
        return Err(missing("--model <FILE>").into());
    }
    if spec.data.is_empty() {
        return Err(missing("--data <URL>").into());
    }
    spec.data = data_url(&spec.data)?;
    Ok(spec)
}

/// Returns the path of a run's model.
fn model_of(run: &Path) -> Result<PathBuf> {
    let run = runs::resolve_run(Path::new(runs::DEFAULT), run);
    let model = run.join(folder::MODEL);
    if !model.is_file() {
        let error = anyhow!(
            "no {} in {}: the run wrote no model",
            folder::MODEL,
            run.display()
        );
        return Err(Hinted::wrap(error, resume(&run, &[])));
    }
    Ok(model)
}

/// Converts the error of a job, and adds a hint if the run can be resumed.
fn failed(error: TrainerError, run: &Path, spec: &JobSpec) -> anyhow::Error {
    let steps = match error.cause() {
        // Without this flag, the job would fail at the same images again.
        TrainerError::BadSample { .. } | TrainerError::DataChanged { .. } => {
            resume(run, &["--on-bad-sample", "skip"])
        }
        // The checkpoint precedes the divergence, which would occur again.
        TrainerError::Diverged { .. } | TrainerError::Run { .. } => Vec::new(),
        TrainerError::Resume { .. } => vec![NextStep::unset(changed(run, spec))],
        other if for_job(other, &CommandLine::of_process()).is_empty() => resume(run, &[]),
        _ => Vec::new(),
    };
    match steps.is_empty() {
        true => error.into(),
        false => Hinted::wrap(error, steps),
    }
}

/// Suggests to resume `run` with these flags, if it has a checkpoint.
fn resume(run: &Path, flags: &[&str]) -> Vec<NextStep> {
    match run.to_str() {
        Some(run) if frostline_trainer::can_resume(Path::new(run)) => {
            vec![NextStep::run(&[&["train", "--resume", run], flags].concat())]
        }
        _ => Vec::new(),
    }
}

/// Returns the settings on the command line that differ from the job of `run`.
fn changed(run: &Path, spec: &JobSpec) -> Vec<String> {
    let Ok(then) = frostline_trainer::recorded_job(run) else {
        return Vec::new();
    };
    // Some jobs may change the number of epochs.
    let other_epochs = JobSpec {
        recipe: Recipe {
            epochs: spec.recipe.epochs,
            ..then.recipe.clone()
        },
        ..then.clone()
    };
    let epochs_may_differ = frostline_job::refusal(&then, &other_epochs, 0).is_none();
    let then = then.settings();
    let line = CommandLine::of_process();
    let settings = spec.settings().into_iter().filter(|now| {
        let then = then.iter().find(|then| then.name == now.name);
        matches!(now.class, Class::Identity | Class::Exact)
            && then.is_some_and(|then| then.value != now.value)
    });
    settings
        .map(|setting| setting.name)
        .filter(|name| name != "epochs" || !epochs_may_differ)
        .filter(|name| line.typed(name).is_some())
        .collect()
}

/// Prints a job with all defaults in the recorded format, which `--job` and `--recipe` accept.
fn show(job: &Job, json: bool) -> Result<()> {
    let spec = JobSpec {
        freeze: Some(job.freeze.clone()),
        ..job.spec.recorded()
    };
    if json {
        return Ok(print_json(&spec)?);
    }
    say!("{}", toml::to_string(&spec)?.trim_end());
    Ok(())
}

/// Returns the default name for an uploaded network.
pub(crate) fn model_name(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// Reads a network and the preprocessing file next to it.
pub(crate) fn read_model_and_pixels(
    file: &Path,
    interface: &InterfaceFlags,
    pixels: &PixelFlags,
) -> Result<Model> {
    let mut model = read_model(file, interface)?;
    read_pixels_beside(&mut model, file, pixels)?;
    Ok(model)
}

/// Reads a network. Errors contain the file name.
pub(crate) fn read_model(file: &Path, interface: &InterfaceFlags) -> Result<Model> {
    Model::read_joined(file, &interface.interface())
        .with_context(|| format!("cannot use the model {}", file.display()))
}
