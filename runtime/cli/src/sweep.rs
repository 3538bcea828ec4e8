//! `frostline train --sweep`, which trains the same job with different values of settings. All variants use
//! the features cached by the first variant.

use crate::arguments::{Sweep, TrainFlags};
use crate::hints::{Hinted, NextStep};
use crate::output::{print_json, print_table, write_file};
use crate::results;
use crate::runs::new_folder;
use crate::sweep_definition::SweepDefinition;
use crate::training::{connect, train_with_events};
use anyhow::{Context, Result, anyhow, bail};
use frostline_job::folder::{self as layout, FinalState};
use frostline_job::{Event, LoggedEvent};
use frostline_tensor::one_line;
use frostline_trainer::{Job, JobResult, Quality, RunFolder, RunState, TrainerError, runs};
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum number of variants. Each variant uses disk space for a run and training time.
const MOST: usize = 64;

/// A variant of the job.
struct Variant {
    /// Swept settings with values: `lr=0.1,seed=1`.
    name: String,
    job: Job,
}

#[derive(Debug, Serialize)]
struct VariantOutcome {
    variant: String,
    run: PathBuf,
    state: VariantState,
    seconds: f64,
    /// The written model, if any.
    #[serde(flatten)]
    tuned: Option<VariantModel>,
    /// The error if the variant did not finish.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Model of a variant.
#[derive(Debug, Clone, Copy, Serialize)]
struct VariantModel {
    /// Epoch of the written weights.
    epoch: u32,
    #[serde(flatten)]
    validation: Quality,
}

/// Final state of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
enum VariantState {
    Finished,
    /// Typically caused by a high learning rate. Not an error in a sweep.
    Diverged,
    Interrupted,
    Failed,
}

/// Result of a sweep.
#[derive(Serialize)]
#[serde(tag = "event", rename = "sweep")]
struct Swept<'a> {
    variants: &'a [VariantOutcome],
    best: &'a str,
    model: &'a Path,
    report: &'a Path,
}

/// Starts a new sweep of `job`.
pub(crate) async fn run(flags: &TrainFlags, job: Job, json: bool, stop: &CancellationToken) -> Result<()> {
    let variants = variants(&job, &flags.sweep).await?;
    let folder = new_folder(&flags.runs, &format!("{}-sweep", job.model_name()))?;
    SweepDefinition::new(&flags.sweep, &job)?.write(&folder)?;
    train_all(job, variants, &folder, json, stop).await
}

/// Resumes the sweep in `folder`. Finished variants are not trained again. Other variants are resumed or
/// started.
pub(crate) async fn resume(
    folder: &Path,
    sweeps: &[Sweep],
    job: Job,
    json: bool,
    stop: &CancellationToken,
) -> Result<()> {
    let variants = variants(&job, sweeps).await?;
    train_all(job, variants, folder, json, stop).await
}

/// Trains all variants of `job` and copies the best model to the output file. After a failed variant, the
/// sweep continues with the next one. After an interruption, the best model so far is copied.
async fn train_all(
    mut job: Job,
    variants: Vec<Variant>,
    folder: &Path,
    json: bool,
    stop: &CancellationToken,
) -> Result<()> {
    let count = variants.len();
    if job.features.is_none() && !json {
        tell!(
            "the feature cache is off (--feature-cache), so the frozen layers run for each of the {count} jobs"
        );
    }
    let connection = connect(&mut job).await?;
    let mut rows = Vec::new();
    for Variant {
        name,
        job: mut variant,
    } in variants
    {
        if stop.is_cancelled() {
            break;
        }
        let run = folder.join(name.replace('/', "-"));
        if let Some(row) = finished(&name, &run) {
            rows.push(row);
            continue;
        }
        variant.shared_cores = job.shared_cores;
        variant.run = Some(run_folder(&run)?);
        // Only the best model is written to the output file.
        variant.spec.out = None;
        if json {
            // Ignore errors like for other events, because training must not end with the reader of the events.
            let _ = print_json(&serde_json::json!({"event": "variant", "variant": name, "run": run}));
        } else {
            say!("variant    {name}");
        }
        let began = Instant::now();
        let trained = train_with_events(variant, &connection, json, stop).await;
        if let Err(error) = results::write(&run) {
            tracing::warn!("cannot write the report of the run {name}: {error}");
        }
        let row = row(name, run, began.elapsed().as_secs_f64(), trained);
        if let Some(error) = &row.error {
            tracing::warn!("{}: {error}", row.variant);
        }
        rows.push(row);
    }
    connection.close().await;
    conclude(&rows, folder, job.spec.out.as_deref(), count, json)?;
    outcome(&rows, folder, count)
}

/// Returns the outcome of a variant that has already finished.
fn finished(variant: &str, run: &Path) -> Option<VariantOutcome> {
    if layout::final_state(run) != Some(FinalState::Finished) {
        return None;
    }
    let events = fs::read(run.join(layout::EVENTS)).ok()?;
    let mut lines = events.split(|byte| *byte == b'\n').rev();
    let done = lines.find_map(|line| match LoggedEvent::parse(line).ok()?.event? {
        Event::Done(done) => Some(done),
        _ => None,
    });
    let done = done?;
    Some(row(variant.to_owned(), run.to_owned(), done.seconds, Ok(done)))
}

/// Returns the folder for the run of a variant. The run is resumed if it has a checkpoint. Otherwise, it is
/// deleted and started again.
///
/// # Errors
/// Returns an error if the variant is running in another process.
fn run_folder(run: &Path) -> Result<RunFolder> {
    if frostline_trainer::can_resume(run) {
        return Ok(RunFolder::resumed(run));
    }
    let sweep = run.parent().unwrap_or(run);
    let listed = runs(sweep).with_context(|| format!("cannot list the runs in {}", sweep.display()))?;
    if listed
        .iter()
        .any(|listed| listed.path == run && listed.state == RunState::Running)
    {
        bail!("{} is still running", run.display());
    }
    // Without a checkpoint, the run contains no progress.
    let _ = fs::remove_dir_all(run);
    Ok(RunFolder::new(run))
}

fn row(
    variant: String,
    run: PathBuf,
    seconds: f64,
    trained: Result<JobResult, TrainerError>,
) -> VariantOutcome {
    let (state, kept) = match &trained {
        Ok(_) => (VariantState::Finished, None),
        Err(TrainerError::Diverged { kept, .. }) => (VariantState::Diverged, kept.as_ref()),
        Err(TrainerError::Stopped { kept, .. }) => (VariantState::Interrupted, Some(kept)),
        Err(TrainerError::Cancelled) => (VariantState::Interrupted, None),
        Err(TrainerError::Failed { kept, .. }) => (VariantState::Failed, Some(kept)),
        Err(_) => (VariantState::Failed, None),
    };
    let kept = kept.map(|kept| (kept.epoch, kept.validation));
    let done = trained.as_ref().ok().map(|done| (done.epoch, done.validation));
    VariantOutcome {
        variant,
        run,
        state,
        seconds,
        tuned: done
            .or(kept)
            .map(|(epoch, validation)| VariantModel { epoch, validation }),
        error: trained.err().map(|error| one_line(&error)),
    }
}

/// Adds the hint to resume the sweep in `folder`.
fn resumable(error: anyhow::Error, folder: &Path) -> anyhow::Error {
    let folder = folder.to_string_lossy();
    Hinted::wrap(error, vec![NextStep::run(&["train", "--resume", &folder])])
}

/// Returns true if a variant was interrupted or not started.
fn is_interrupted(rows: &[VariantOutcome], count: usize) -> bool {
    rows.len() < count || rows.iter().any(|row| row.state == VariantState::Interrupted)
}

/// Returns an error if a variant failed or the sweep was interrupted. Divergence is a valid result.
fn outcome(rows: &[VariantOutcome], folder: &Path, count: usize) -> Result<()> {
    if is_interrupted(rows, count) {
        let done = rows
            .iter()
            .filter(|row| row.state != VariantState::Interrupted)
            .count();
        let error = anyhow!("interrupted after {done} of {count} variants; wrote the best model so far");
        return Err(resumable(error, folder));
    }
    if let Some(row) = rows.iter().find(|row| row.state == VariantState::Failed) {
        let why = row.error.as_deref().unwrap_or_default();
        bail!(
            "variant {} failed: {why}; the best model of all variants was written",
            row.variant
        );
    }
    Ok(())
}

/// Returns checked jobs for all combinations of the values.
async fn variants(job: &Job, sweeps: &[Sweep]) -> Result<Vec<Variant>> {
    let mut specs = vec![(String::new(), job.spec.clone())];
    for sweep in sweeps {
        if specs.len() * sweep.values.len() > MOST {
            bail!("--sweep results in more than {MOST} jobs; remove some values");
        }
        for (name, spec) in std::mem::take(&mut specs) {
            for value in &sweep.values {
                let mut spec = spec.clone();
                sweep.set(&mut spec, value).map_err(anyhow::Error::msg)?;
                let own = format!("{}={value}", sweep.setting);
                let comma = if name.is_empty() { "" } else { "," };
                specs.push((format!("{name}{comma}{own}"), spec));
            }
        }
    }
    let mut variants = Vec::new();
    for (name, spec) in specs {
        let mut job = job.clone();
        if sweeps.iter().any(|sweep| sweep.setting == "freeze") {
            job.freeze = match spec.freeze.as_deref() {
                Some("none") | None => job.model.input_name()?.to_owned(),
                Some(cut) => cut.to_owned(),
            };
        }
        job.spec = spec;
        let checked = job.checked().await;
        let job = checked.with_context(|| format!("in the variant {name}"))?;
        variants.push(Variant { name, job });
    }
    Ok(variants)
}

/// Returns the row with the best model, or the first one if several are equal.
fn best(rows: &[VariantOutcome]) -> Option<&VariantOutcome> {
    let rated = rows.iter().filter_map(|row| Some((row, row.tuned?.validation)));
    let rated = rated.filter(|(_, quality)| !quality.score().is_nan());
    let best = rated.reduce(|best, row| if row.1.compare(&best.1).is_gt() { row } else { best });
    best.map(|(row, _)| row)
}

/// Copies the best model to `out`, and writes the report and the summary of `count` variants.
fn conclude(
    rows: &[VariantOutcome],
    folder: &Path,
    out: Option<&Path>,
    count: usize,
    json: bool,
) -> Result<()> {
    let Some(best) = best(rows) else {
        if !json {
            print_rows(rows, "")?;
        }
        if is_interrupted(rows, count) {
            let error = anyhow!("interrupted before a variant had a model");
            return Err(resumable(error, folder));
        }
        let mut errors = rows.iter().filter_map(|row| row.error.as_deref());
        let why = errors.next().unwrap_or("none started");
        bail!("no variant produced a model: {why}; see {}", folder.display());
    };
    let tuned = best.run.join(layout::MODEL);
    let model = out.unwrap_or(&tuned);
    if let Some(out) = out {
        // Includes external weights.
        let copied = frostline_graph::Model::read(&tuned)?.write(out);
        copied.with_context(|| format!("cannot write {}", out.display()))?;
    }
    // Skip variants that failed before the first event.
    let runs = rows.iter().map(|row| frostline_report::Run::read(&row.run));
    let runs: Vec<_> = runs.filter_map(Result::ok).collect();
    let report = folder.join(layout::REPORT);
    write_file("", &report, frostline_report::html(&runs).as_bytes())?;
    if json {
        return Ok(print_json(&Swept {
            variants: rows,
            best: &best.variant,
            model,
            report: &report,
        })?);
    }
    print_rows(rows, &best.variant)?;
    say!("model      {}\nreport     {}", model.display(), report.display());
    Ok(())
}

fn print_rows(rows: &[VariantOutcome], best: &str) -> Result<()> {
    let columns = "variant|state|epoch>|validation|seconds>|";
    let rows = rows.iter().map(|row| {
        let epoch = row.tuned.map(|tuned| tuned.epoch.to_string());
        let validation = row.tuned.map(|tuned| tuned.validation.to_string());
        let mark = if row.variant == best { "best" } else { "" };
        [
            row.variant.clone(),
            row.state.to_string(),
            epoch.unwrap_or_default(),
            validation.unwrap_or_default(),
            format!("{:.1}", row.seconds),
            mark.to_owned(),
        ]
    });
    print_table(columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_of(name: &str, state: VariantState, accuracy: Option<f64>) -> VariantOutcome {
        VariantOutcome {
            variant: name.to_owned(),
            run: name.into(),
            state,
            seconds: 1.0,
            tuned: accuracy.map(|accuracy| VariantModel {
                epoch: 2,
                validation: Quality::Classes { accuracy },
            }),
            error: (state != VariantState::Finished).then(|| "no route to host".to_owned()),
        }
    }

    #[test]
    fn the_best_model_may_come_from_a_diverged_variant() {
        let rows = [
            row_of("a", VariantState::Finished, Some(0.5)),
            row_of("b", VariantState::Diverged, Some(0.75)),
            row_of("c", VariantState::Failed, None),
            row_of("d", VariantState::Finished, Some(f64::NAN)),
        ];
        assert_eq!(best(&rows).unwrap().variant, "b");
        assert!(best(&rows[2..]).is_none());
        let said = outcome(&rows, Path::new("runs"), 4).unwrap_err().to_string();
        assert!(said.contains("variant c failed: no route to host"), "{said}");
        assert!(outcome(&rows[..2], Path::new("runs"), 2).is_ok());
        let said = outcome(&rows[..2], Path::new("runs"), 3).unwrap_err().to_string();
        assert!(said.contains("2 of 3"), "{said}");
    }

    #[test]
    fn a_row_says_its_state_and_its_figures() {
        let row = serde_json::to_value(row_of("b", VariantState::Diverged, Some(0.75))).unwrap();
        assert_eq!(
            row,
            serde_json::json!({"variant": "b", "run": "b", "state": "diverged", "seconds": 1.0, "epoch": 2, "accuracy": 0.75,
                "error": "no route to host"})
        );
    }
}
