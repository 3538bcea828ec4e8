//! `frostline train`.

use crate::arguments::{BadSample, Train};
use crate::failure::Hinted;
use crate::host::{Connection, data_url};
use crate::output::print_json;
use crate::reporter::Reporter;
use crate::team::team;
use crate::{results, runs, sweep};
use anyhow::{Context, Result};
use frostline_graph::Model;
use frostline_trainer::{Guest, Job, Keep, OnBadSample, Recipe, RunFolder, TrainerError, train};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(crate) async fn run(flags: Train, json: bool, stop: &CancellationToken) -> Result<()> {
    let mut job = job(&flags)?;
    // Its folder is made once it is known to be a job.
    job.run = Some(RunFolder::new(&flags.run.runs));
    let mut job = job.checked().await?;
    if flags.dry_run {
        return show(&job, json);
    }
    if !flags.sweep.is_empty() {
        return sweep::run(&flags, job, json, stop).await;
    }
    let connection = Connection::open(flags.host.access(), &job.root, &flags.compute.device).await?;
    job.shared_cores = connection.is_embedded();
    let folder = runs::folder(&flags, &job)?;
    let run = folder.path.clone();
    job.run = Some(folder);
    let reporter = Arc::new(Reporter::new(json));
    let events = Arc::clone(&reporter);
    let hosts = connection.hosts();
    let result = train(
        job,
        hosts,
        Arc::new(move |event| events.show(&event)),
        stop.clone(),
    )
    .await;
    reporter.finish();
    connection.close().await;
    if matches!(
        result,
        Ok(_) | Err(TrainerError::Stopped { .. } | TrainerError::Diverged { .. })
    ) {
        match results::write(&run) {
            Ok(report) if !json => say!("report     {}", report.display()),
            Ok(_) => {}
            Err(error) => tracing::warn!("the run has no report: {error}"),
        }
    }
    result.map(drop).map_err(|error| failed(error, &run))
}

/// Why a job ended, with how to go on where there is something to go on from.
fn failed(error: TrainerError, run: &Path) -> anyhow::Error {
    let settled = matches!(
        error,
        TrainerError::Stopped { .. } | TrainerError::Run { .. } | TrainerError::Resume { .. }
    );
    if settled || !frostline_trainer::can_resume(run) {
        return error.into();
    }
    let hint = format!(
        "what was trained is kept: frostline train --resume {} goes on",
        run.display()
    );
    anyhow::Error::new(Hinted { error, hint })
}

/// A job with all its defaults, as `--dry-run` prints it. The recipe's part may be saved and used again.
#[derive(Serialize)]
struct Resolved<'a> {
    model: &'a str,
    data: &'a str,
    labels: String,
    freeze: &'a str,
    split: String,
    encoding: String,
    guest: &'a str,
    device: String,
    threads: usize,
    keep: Keep,
    #[serde(skip_serializing_if = "Option::is_none")]
    patience: Option<u32>,
    reproducible: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unfreeze: BTreeMap<String, &'a String>,
    recipe: &'a Recipe,
}

fn show(job: &Job, json: bool) -> Result<()> {
    job.recipe.check()?;
    let encoding = job.encoding.map(|encoding| encoding.to_string());
    let labels = job.labels.as_ref();
    let resolved = Resolved {
        model: &job.model_name,
        data: &job.root,
        labels: labels.map_or_else(|| "auto".to_owned(), |file| file.display().to_string()),
        freeze: &job.freeze,
        split: job.split.to_string(),
        encoding: encoding.unwrap_or_else(|| "auto".to_owned()),
        guest: &job.guest.name,
        device: job.device.to_string(),
        threads: job.threads,
        keep: job.keep,
        patience: job.patience,
        reproducible: job.reproducible,
        unfreeze: job
            .unfreeze
            .0
            .iter()
            .map(|(epoch, cut)| (epoch.to_string(), cut))
            .collect(),
        recipe: &job.recipe,
    };
    if json {
        return Ok(print_json(&resolved)?);
    }
    say!("{}", toml::to_string(&resolved)?.trim_end());
    Ok(())
}

fn job(flags: &Train) -> Result<Job> {
    let model = read_model(&flags.inputs.model)?;
    let freeze = freeze(&model, flags.training.freeze.as_deref())?;
    let name = model_name(&flags.inputs.model);
    let mut job = Job::new(model, name, freeze, data_url(&flags.inputs.data)?, PathBuf::new());
    job.out.clone_from(&flags.out);
    job.guest = guest(flags.guest.as_deref(), flags.parameters.as_deref())?;
    job.split = flags.split.clone();
    job.encoding = flags.training.encoding.fixed();
    job.layout = flags.inputs.layout.into();
    job.unfreeze = flags.training.unfreeze.clone().unwrap_or_default();
    job.labels.clone_from(&flags.training.labels);
    job.validation_share = flags.training.validation;
    job.recipe = flags.training.recipe.resolve(&flags.training.augment)?;
    job.terms = flags.terms.terms();
    job.flow.ahead = flags.prefetch;
    job.flow.request_samples = flags.request_samples;
    (job.keep, job.patience) = (flags.run.keep.into(), flags.run.patience);
    job.reproducible = flags.run.reproducible;
    job.on_bad_sample = on_bad_sample(flags.on_bad_sample);
    job.device = flags.compute.device.parse()?;
    job.threads = flags.compute.threads;
    job.features = flags.features.cache();
    job.team = team(flags.team.feature_store.as_deref(), job.features.is_some())?;
    Ok(job)
}

/// What a host is to call the network in `file`.
pub(crate) fn model_name(file: &Path) -> String {
    file.file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The network in `file`; an error names the file.
pub(crate) fn read_model(file: &Path) -> Result<Model> {
    Model::read(file).with_context(|| format!("cannot use the model {}", file.display()))
}

/// Where the network is frozen up to: at the cut `asked` for, by default the last before the classifier; with `none`, at its input.
pub(crate) fn freeze(model: &Model, asked: Option<&str>) -> Result<String> {
    match asked {
        Some("none") => Ok(model.input_name()?.to_owned()),
        Some(cut) => Ok(cut.to_owned()),
        None => last_cut_before_head(model),
    }
}

/// The cut that feeds the classifier: the natural freeze cut when nothing else is asked for.
pub(crate) fn last_cut_before_head(model: &Model) -> Result<String> {
    let network = model.network()?;
    let cut = network.cuts.iter().rev().find(|cut| cut.before_head);
    Ok(cut
        .context("no cut of the network lies before its classifier, so there is nothing to freeze")?
        .name
        .clone())
}

/// The guest in `file`, or the stock one, told `parameters`.
pub(crate) fn guest(file: Option<&Path>, parameters: Option<&str>) -> Result<Guest> {
    let guest = file.map_or_else(|| Ok(Guest::stock()), own_guest)?;
    Ok(Guest {
        parameters: parameters.map(str::to_owned),
        ..guest
    })
}

fn own_guest(file: &Path) -> Result<Guest> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read the guest {}", file.display()))?;
    let name = file
        .file_stem()
        .map(|stem| stem.to_string_lossy().to_lowercase().replace('_', "-"))
        .unwrap_or_default();
    Ok(Guest {
        name,
        bytes: bytes.into(),
        parameters: None,
    })
}

pub(crate) fn on_bad_sample(choice: BadSample) -> OnBadSample {
    match choice {
        BadSample::Fail => OnBadSample::Fail,
        BadSample::Skip => OnBadSample::Skip,
    }
}
