//! Preparation of new and resumed jobs.

use super::context::JobContext;
use super::run::{RunRecord, TrainingRun};
use super::training_loop::{TrainingLoop, parts};
use super::unfreeze::Phase;
use crate::checkpoint::{CheckpointWriter, FoundCheckpoint, LockedRun, Progress, Rearrangement, SampleIndex};
use crate::evaluation::Division;
use crate::event::warn;
use crate::replan::Watch;
use crate::setup::{Prepared, prepare, unfreeze};
use crate::{Event, Events, Job, TrainerError, blocking};
use frostline_compute::{Suffix, SuffixParts};
use std::sync::Arc;

impl<'a> TrainingLoop<'a> {
    /// Prepares a job and evaluates the initial model. Resumes from the checkpoint in `folder` if one exists.
    pub(crate) async fn start(
        context: JobContext<'a>,
        mut folder: Option<LockedRun>,
    ) -> Result<Self, TrainerError> {
        let JobContext { job, events, .. } = context;
        let mut found = folder.as_mut().and_then(LockedRun::take_found);
        announce(job, found.as_ref(), events);
        let mut prepared = prepare(job, false, context.hosts, events).await?;
        let checkpoint_writer = match folder {
            Some(folder) => Some(record_plan(folder, &mut prepared, found.as_mut(), events).await?),
            None => None,
        };
        let phases = job.phases();
        let place = found.as_ref().map_or(0, |found| phase_of(found, &phases));
        let phase = phases.get(place).ok_or(TrainerError::Ended { part: "plan" })?;
        let mut prepared = match place {
            0 => prepared,
            _ => Box::pin(prepare_later_phase(context, phase, &prepared)).await?,
        };
        let is_new = found.is_none();
        let mut run = start_run(context, phase, &mut prepared, found, checkpoint_writer).await?;
        if is_new {
            run.check_frozen_layers(job, &prepared.network).await?;
            run.baseline().await?;
            // From here on, a resume can reuse the measurements and the chosen split.
            run.save().await?;
        }
        Ok(Self {
            context,
            prepared,
            run,
            phase: place,
        })
    }
}

/// Writes the plan and the samples to the run folder, and returns the checkpoint writer. A resumed job
/// continues without the samples that have changed since the checkpoint `found`, if it may skip samples.
async fn record_plan(
    folder: LockedRun,
    prepared: &mut Prepared,
    found: Option<&mut FoundCheckpoint>,
    events: &Events,
) -> Result<CheckpointWriter, TrainerError> {
    if let Some(planner) = prepared.watch.as_ref().and_then(Watch::planner) {
        let plan = planner.plan()?;
        folder.plan(&planner.summary(&plan))?;
    }
    let feed = prepared.data.feed.clone();
    let classes = prepared.data.classes.clone();
    let samples = blocking(move || Ok(SampleIndex::from_feed(&feed, &classes))).await?;
    let (note, rearrangement) = folder.check_samples(samples).await?;
    if let (Some(rearrangement), Some(found)) = (rearrangement, found) {
        leave_out(rearrangement, prepared, found, events);
    }
    Ok(folder.checkpoint_writer(note, events))
}

/// Restores the recorded samples, except for those that have changed, and emits a warning.
fn leave_out(
    rearrangement: Rearrangement,
    prepared: &mut Prepared,
    found: &mut FoundCheckpoint,
    events: &Events,
) {
    let difference = rearrangement.difference;
    let data = &mut prepared.data;
    data.feed = rearrangement.apply(data.feed.clone());
    if difference.added + difference.removed > 0 {
        // An evaluation of the tuned model cannot reproduce the division of this run.
        data.division = data.division.take().map(Division::with_unknown_past);
    }
    if rearrangement.lost_validation
        && let Some(best) = &mut found.best
    {
        best.predictions.clear();
    }
    found.snapshot.bad.extend(rearrangement.left_out);
    warn(
        events,
        format!("data set changed: {difference}; continuing without these samples"),
    );
}

/// Index of the phase stored in the checkpoint.
fn phase_of(found: &FoundCheckpoint, phases: &[Phase]) -> usize {
    let freeze = &found.snapshot.note.at.freeze;
    let place = phases.iter().position(|phase| phase.freeze == *freeze);
    place.unwrap_or(0)
}

/// Prepares a later phase if the checkpoint belongs to it.
async fn prepare_later_phase(
    context: JobContext<'_>,
    phase: &Phase,
    prepared: &Prepared,
) -> Result<Prepared, TrainerError> {
    let job = context.job.in_phase(phase);
    let last = &prepared.chosen.split;
    unfreeze(&job, prepared, last, Vec::new(), context.hosts, context.events).await
}

/// Starts fetching and computing, with the state of the checkpoint `found` if any.
async fn start_run(
    context: JobContext<'_>,
    phase: &Phase,
    prepared: &mut Prepared,
    found: Option<FoundCheckpoint>,
    checkpoint_writer: Option<CheckpointWriter>,
) -> Result<TrainingRun, TrainerError> {
    let from = found
        .as_ref()
        .map_or(Progress::at(0, 0), |found| found.snapshot.note.at.progress);
    let state = found
        .as_ref()
        .map(|found| Arc::new(found.snapshot.suffix.clone()));
    let record = match found {
        Some(found) => RunRecord::resumed(context, checkpoint_writer, found, &prepared.data.feed),
        None => RunRecord::new(context, checkpoint_writer),
    };
    let parts = parts(context.job, prepared, phase, from)?;
    let layers = SuffixParts {
        state,
        ..prepared.suffix.clone()
    };
    let awaited = (!prepared.all_cached).then_some(&prepared.chosen.split);
    let suffix = Suffix::start(layers, awaited).await?;
    TrainingRun::start(context, parts, record, suffix)
}

/// Emits the run folder and the checkpoint to resume from.
fn announce(job: &Job, found: Option<&FoundCheckpoint>, events: &Events) {
    let Some(run) = &job.run else { return };
    let progress = found.map(|found| found.snapshot.note.at.progress);
    events(Event::Run {
        folder: run.path.clone(),
        checkpoint: found.map(|found| found.path.clone()),
        epoch: progress.map_or(1, |progress| progress.epoch),
        steps: progress.map_or(0, |progress| progress.step),
    });
    for told in found.into_iter().flat_map(|found| &found.warnings) {
        warn(events, told);
    }
}
