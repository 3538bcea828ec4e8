//! `frostline train --sweep`: the same job with several values of a setting, one after the other on the rows that the first of them kept.

use crate::arguments::{Sweep, Train};
use crate::host::Connection;
use crate::output::{print_json, print_table};
use crate::reporter::Reporter;
use crate::results;
use crate::runs::new_folder;
use crate::train::connect;
use anyhow::{Context, Result, bail};
use frostline_trainer::{Job, Outcome, Quality, RunFolder, TrainerError, train, whole_file};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Jobs of one sweep: each keeps a folder and takes its time.
const MOST: usize = 64;

/// One job of a sweep.
struct Variant {
    /// Its settings, such as `lr=0.1,seed=1`.
    name: String,
    job: Job,
}

/// What became of one.
#[derive(Serialize)]
struct Row {
    variant: String,
    run: PathBuf,
    /// The epoch whose weights were written.
    epoch: u32,
    seconds: f64,
    #[serde(flatten)]
    validation: Quality,
}

/// What a sweep came to.
#[derive(Serialize)]
#[serde(tag = "event", rename = "sweep")]
struct Swept {
    variants: Vec<Row>,
    best: String,
    model: PathBuf,
    report: PathBuf,
}

/// Trains all variants of `job` and copies the best one's model to where the job's goes.
pub(crate) async fn run(flags: &Train, mut job: Job, json: bool, stop: &CancellationToken) -> Result<()> {
    // Before anything is begun.
    let count = variants(&job, &flags.sweep)?.len();
    let folder = new_folder(&flags.runs, &format!("{}-sweep", job.model_name()))?;
    if job.features.is_none() && !json {
        tell!(
            "no rows are kept (--feature-cache): the frozen layers run for each of the {} jobs",
            count
        );
    }
    let connection = connect(&mut job).await?;
    let mut rows = Vec::new();
    for variant in variants(&job, &flags.sweep)? {
        let run = folder.join(&variant.name);
        let trained = one(variant, &run, &connection, json, stop).await;
        match trained {
            Ok(Some(row)) => rows.push(row),
            Ok(None) => {}
            Err(error) => {
                connection.close().await;
                return Err(error);
            }
        }
    }
    connection.close().await;
    conclude(rows, &folder, job.spec.out.as_deref(), json)
}

async fn one(
    variant: Variant,
    run: &Path,
    connection: &Connection,
    json: bool,
    stop: &CancellationToken,
) -> Result<Option<Row>> {
    let Variant { name, mut job } = variant;
    // The best is written there, which this may not be.
    job.spec.out = None;
    job.run = Some(RunFolder::new(run));
    if json {
        // As for all events: whoever reads them no more does not end what was asked for.
        let _ = print_json(&serde_json::json!({"event": "variant", "variant": name, "run": run}));
    } else {
        say!("variant    {name}");
    }
    let reporter = Arc::new(Reporter::new(json));
    let events = Arc::clone(&reporter);
    let told = Arc::new(move |event| events.show(&event));
    let trained = train(job, connection.hosts(), told, stop.clone()).await;
    reporter.finish();
    if let Err(error) = results::write(run) {
        tracing::warn!("the run {name} has no report: {error}");
    }
    match trained {
        Ok(outcome) => Ok(Some(row(name, run, &outcome))),
        // A rate that is too high is what a sweep finds out.
        Err(error @ TrainerError::Diverged { .. }) => {
            tracing::warn!("{name}: {error}");
            Ok(None)
        }
        Err(error) => Err(anyhow::Error::new(error).context(format!("the variant {name}"))),
    }
}

fn row(variant: String, run: &Path, outcome: &Outcome) -> Row {
    Row {
        variant,
        run: run.to_owned(),
        epoch: outcome.epoch,
        seconds: outcome.seconds,
        validation: outcome.validation,
    }
}

/// Every combination of the values.
fn variants(job: &Job, sweeps: &[Sweep]) -> Result<Vec<Variant>> {
    let mut variants = vec![Variant {
        name: String::new(),
        job: job.clone(),
    }];
    for sweep in sweeps {
        if variants.len() * sweep.values.len() > MOST {
            bail!("--sweep comes to more than {MOST} jobs; leave some values out");
        }
        let with = |variant: &Variant, value: &String| -> Result<Variant> {
            let mut job = variant.job.clone();
            sweep.set(&mut job.spec, value).map_err(anyhow::Error::msg)?;
            let own = format!("{}={value}", sweep.what);
            let name = if variant.name.is_empty() {
                own
            } else {
                format!("{},{own}", variant.name)
            };
            Ok(Variant { name, job })
        };
        let next: Result<Vec<Variant>> = variants
            .iter()
            .flat_map(|variant| sweep.values.iter().map(move |value| with(variant, value)))
            .collect();
        variants = next?;
    }
    for variant in &variants {
        variant
            .job
            .spec
            .recipe
            .check()
            .with_context(|| format!("the variant {}", variant.name))?;
    }
    Ok(variants)
}

fn conclude(rows: Vec<Row>, folder: &Path, out: Option<&Path>, json: bool) -> Result<()> {
    let score = |row: &&Row| row.validation.score();
    let best = rows
        .iter()
        .max_by(|left, right| score(left).total_cmp(&score(right)));
    let Some(best) = best else {
        bail!(
            "none of the variants trained; their runs are in {}",
            folder.display()
        );
    };
    let tuned = best.run.join("tuned.onnx");
    let model = match out {
        None => tuned,
        Some(out) => {
            copy(&tuned, out)?;
            out.to_owned()
        }
    };
    let runs: Result<Vec<_>, _> = rows
        .iter()
        .map(|row| frostline_report::Run::read(&row.run))
        .collect();
    let report = folder.join("report.html");
    let page = frostline_report::html(&runs?);
    whole_file::write(&report, |file| file.write_all(page.as_bytes()))
        .with_context(|| format!("cannot write {}", report.display()))?;
    let best = best.variant.clone();
    if json {
        return Ok(print_json(&Swept {
            variants: rows,
            best,
            model,
            report,
        })?);
    }
    let table: Vec<Vec<String>> = rows.iter().map(|row| shown(row, &best)).collect();
    print_table(
        &["variant", "epoch", "validation", "seconds", ""],
        &[false, true, false, true, false],
        &table,
    )?;
    say!("model      {}\nreport     {}", model.display(), report.display());
    Ok(())
}

fn shown(row: &Row, best: &str) -> Vec<String> {
    vec![
        row.variant.clone(),
        row.epoch.to_string(),
        row.validation.to_string(),
        format!("{:.1}", row.seconds),
        if row.variant == best {
            "best".to_owned()
        } else {
            String::new()
        },
    ]
}

/// Copies a model, with the weights that lie beside a large one.
fn copy(tuned: &Path, out: &Path) -> Result<()> {
    let model = frostline_graph::Model::read(tuned)?;
    model
        .write(out)
        .with_context(|| format!("cannot write {}", out.display()))
}
