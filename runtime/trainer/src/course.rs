//! A job's way from its first step, or from a checkpoint, to the weights that are written.

use crate::checkpoint::{BestNote, Folder, Found, KeptEpoch, SampleIndex, Weights};
use crate::compute::{Suffix, blocking};
use crate::division::Division;
use crate::notes::Input;
use crate::pipeline::{FeedPlan, Steering};
use crate::predictions::Predictions;
use crate::replan::Watch;
use crate::results::Results;
use crate::run::{Best, Run, RunParts};
use crate::setup::{Prepared, prepare, unfreeze};
use crate::team::Sharing;
use crate::unfreeze::Phase;
use crate::{Event, Events, Job, Keep, Kept, Outcome, Quality, Received, TrainerError};
use frostline_client::{Hosts, SampleFiles, Task};
use frostline_graph::Model;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A job that has trained and has yet to write its model.
pub(crate) struct Tuned {
    /// Without its weights.
    pub(crate) headed: Model,
    pub(crate) input: Input,
    pub(crate) task: Task,
    pub(crate) division: Option<Division>,
    pub(crate) weights: Weights,
    /// What its run's folder says of it.
    pub(crate) results: Option<Results>,
    /// What goes to its team meanwhile.
    pub(crate) sharing: Sharing,
    /// Where it is written.
    pub(crate) targets: Vec<PathBuf>,
    /// What ended the job before its time, though there are weights to keep.
    pub(crate) ended: Option<TrainerError>,
    /// Without what is known only in the end.
    pub(crate) outcome: Outcome,
}

/// A job on its way through its phases.
pub(crate) struct Course<'a> {
    job: &'a Job,
    hosts: &'a Hosts,
    events: &'a Events,
    cancel: &'a CancellationToken,
    prepared: Prepared,
    run: Run,
    sharing: Sharing,
    /// The phase of the layers that are trained.
    phase: usize,
}

impl<'a> Course<'a> {
    /// Does everything that comes before the first step, or the first after the checkpoint that `folder` found.
    pub(crate) async fn begin(
        job: &'a Job,
        mut folder: Option<Folder>,
        hosts: &'a Hosts,
        events: &'a Events,
        cancel: &'a CancellationToken,
    ) -> Result<Self, TrainerError> {
        let found = folder.as_mut().and_then(Folder::take_found);
        announce(job, found.as_ref(), events);
        let mut prepared = prepare(job, false, hosts, events).await?;
        let keeper = match folder {
            Some(folder) => {
                if let Some(planner) = prepared.watch.as_ref().and_then(Watch::planner) {
                    let plan = planner.plan()?;
                    let flow = planner.flow(&plan.chosen.candidate);
                    folder.plan(&plan.summary(flow, &planner.layers))?;
                }
                let (feed, classes) = (prepared.data.feed.clone(), prepared.data.classes.clone());
                let samples = blocking(move || Ok(SampleIndex::of(&feed, &classes))).await?;
                let note = folder.admit(samples).await?;
                Some(folder.keeper(note, events))
            }
            None => None,
        };
        let phases = job.phases();
        let of = |found: &Found| {
            let freeze = &found.snapshot.note.at.freeze;
            phases.iter().position(|phase| phase.freeze == *freeze)
        };
        let place = found.as_ref().and_then(of).unwrap_or(0);
        let phase = phases.get(place).ok_or(TrainerError::Ended { part: "plan" })?;
        if place > 0 {
            let split = prepared.chosen.split.clone();
            let in_phase = job.in_phase(phase);
            let later = unfreeze(&in_phase, &prepared, &split, Vec::new(), hosts, events);
            prepared = Box::pin(later).await?;
        }
        let mut parts = parts(job, &mut prepared, phase)?;
        let mut layers = prepared.suffix.clone();
        if let Some(found) = &found {
            let progress = found.snapshot.note.at.progress;
            (parts.feed.first, parts.feed.skip) = (progress.epoch, progress.batch);
            parts.bad.clone_from(&found.snapshot.bad);
            layers.state = Some(Arc::new(found.snapshot.suffix.clone()));
        } else {
            parts.feed.first = 0;
        }
        let awaited = (!prepared.all_kept).then_some(&prepared.chosen.split);
        let suffix = Suffix::start(layers, awaited).await?;
        let mut run = Run::start(job, parts, suffix, hosts, events)?;
        (run.keeper, run.stop) = (keeper, cancel.clone());
        run.freeze.clone_from(&phase.freeze);
        match found {
            Some(found) => go_on(&mut run, found, &prepared.data.feed),
            None => {
                run.baseline().await?;
                // What was measured and chosen is kept from here on.
                run.save().await?;
            }
        }
        Ok(Self {
            job,
            hosts,
            events,
            cancel,
            prepared,
            run,
            sharing: Sharing::new(job.team.as_ref(), events),
            phase: place,
        })
    }

    /// Trains the epochs that are left, or those before something ends it.
    ///
    /// # Errors
    /// Whatever ends the job and leaves no model to write.
    pub(crate) async fn run(mut self) -> Result<Tuned, TrainerError> {
        let ended = self.epochs().await;
        self.tell_kept();
        let ended = match ended {
            Ok(()) => None,
            Err(error) => Some(self.kept(error).await?),
        };
        let diverged = matches!(ended, Some(TrainerError::Diverged { .. }));
        let best = self.run.best.take();
        let best = best.filter(|_| diverged || self.job.spec.keep == Keep::Best);
        let written = best.as_ref().map(|best| best.note);
        let (note, kept) = match best {
            Some(Best { note, kept }) => (note, kept),
            None => {
                let weights = self.run.suffix.run(|suffix| suffix.weights()).await?;
                let kept = KeptEpoch {
                    weights: Arc::new(weights),
                    predictions: self.run.predictions.take(),
                };
                (self.present(), kept)
            }
        };
        if self.job.run.is_some() && kept.predictions.is_none() && !self.cancel.is_cancelled() {
            let message = "the run's folder lacks some of its results: nothing is known any more of what the model that is written \
                           made of each validation sample; `frostline eval --predictions` finds it out again";
            (self.events)(Event::Warning {
                message: message.to_owned(),
            });
        }
        let checkpoint = match self.run.keeper.as_mut() {
            Some(keeper) => keeper.settle().await,
            None => None,
        };
        let ended = ended.map(|error| self.explained(error, written, checkpoint.is_some()));
        let Self {
            job,
            prepared,
            run,
            sharing,
            ..
        } = self;
        let split = run.steering.now().split.clone();
        let targets = job.targets();
        let results = job
            .run
            .as_ref()
            .zip(kept.predictions)
            .map(|(run, predictions)| Results {
                folder: run.path.clone(),
                predictions,
                names: prepared.data.classes.clone(),
                root: job.spec.data.clone(),
                images: job.guest.takes() == SampleFiles::Images,
            });
        Ok(Tuned {
            results,
            sharing,
            input: prepared.offer.input(&job.guest.name, &split),
            task: prepared.data.feed.task,
            division: prepared.data.division,
            outcome: Outcome {
                model: targets.first().cloned().unwrap_or_default(),
                classes: prepared.data.classes,
                split,
                baseline: run.baseline.unwrap_or(note.quality),
                epoch: note.epoch,
                validation: note.quality,
                loss: run.last.map_or(f64::NAN, |last| last.loss),
                bytes_received: 0,
                received: Received {
                    listing: prepared.data.listed,
                    measuring: prepared.measuring.bytes_received(),
                    ..run.received()
                },
                seconds: 0.0,
                skipped: run.bad.count(),
            },
            headed: prepared.network.headed,
            targets,
            weights: kept.weights,
            ended,
        })
    }

    async fn epochs(&mut self) -> Result<(), TrainerError> {
        for (place, phase) in self.job.phases().iter().enumerate().skip(self.phase) {
            if place > self.phase {
                if self.out_of_patience() {
                    return Ok(());
                }
                self.unfreeze(phase).await?;
                self.phase = place;
            }
            for epoch in self.run.progress.epoch..=phase.last {
                // Of a job that is gone on with, too.
                if self.run.progress.batch == 0 && self.out_of_patience() {
                    return Ok(());
                }
                self.run.epoch(epoch).await?;
                // The first epoch makes nearly all rows; the last one sees what was passed over.
                if epoch == phase.first || epoch == phase.last || self.would_stop() {
                    let features = self.prepared.data.feed.features.as_ref();
                    self.sharing.begin(features.map(|features| features.store()));
                }
            }
        }
        Ok(())
    }

    /// Tells of the rows at the freeze cut what did not go as it should.
    fn tell_kept(&self) {
        if let Some(features) = &self.prepared.data.feed.features {
            features.tell(self.events);
        }
    }

    /// Whether no epoch was better for too long; that is told.
    fn out_of_patience(&self) -> bool {
        let out = self.would_stop();
        if let Some(best) = self.run.best.as_ref().filter(|_| out) {
            (self.events)(Event::EarlyStop {
                epoch: self.run.progress.epoch.saturating_sub(1),
                best: best.note.first,
            });
        }
        out
    }

    /// Whether no epoch was better for too long.
    fn would_stop(&self) -> bool {
        let (Some(patience), Some(best)) = (self.job.spec.patience, self.run.best.as_ref()) else {
            return false;
        };
        let epoch = self.run.progress.epoch.saturating_sub(1);
        epoch.saturating_sub(best.note.first) >= patience
    }

    /// Goes on with a phase that trains more.
    async fn unfreeze(&mut self, phase: &Phase) -> Result<(), TrainerError> {
        (self.events)(Event::Unfreeze {
            epoch: phase.first,
            freeze: phase.freeze.clone(),
        });
        let weights = self.run.suffix.run(|suffix| suffix.weights()).await?;
        let split = self.run.steering.now().split.clone();
        let job = self.job.in_phase(phase);
        let prepared = unfreeze(&job, &self.prepared, &split, weights, self.hosts, self.events);
        // They go with the phase that kept them.
        self.tell_kept();
        // On the heap: what plans is large, and lies deep here.
        self.prepared = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(TrainerError::Cancelled),
            prepared = Box::pin(prepared) => prepared?,
        };
        let layers = self.prepared.suffix.clone();
        let parts = parts(self.job, &mut self.prepared, phase)?;
        self.run.unfreeze(parts, layers).await?;
        self.run.freeze.clone_from(&phase.freeze);
        Ok(())
    }

    /// Keeps what there is to keep of a job that `error` ends, and gives it back where there is a model to write all the same.
    async fn kept(&mut self, error: TrainerError) -> Result<TrainerError, TrainerError> {
        if let TrainerError::Diverged { .. } = error {
            // The last checkpoint is from before it showed; what is there now is worth nothing.
            return match self.run.best {
                Some(_) => Ok(error),
                None => Err(self.settled(error).await),
            };
        }
        if self.run.progress.step == 0 {
            return Err(self.settled(error).await);
        }
        // What ended the job is what counts, whatever becomes of this.
        let _ = self.run.save().await;
        match error {
            TrainerError::Cancelled => Ok(error),
            error => Err(self.settled(error).await),
        }
    }

    /// `error`, once what was to be written is.
    async fn settled(&mut self, error: TrainerError) -> TrainerError {
        if let Some(keeper) = self.run.keeper.as_mut() {
            keeper.settle().await;
        }
        error
    }

    /// The weights as they are now.
    fn present(&self) -> BestNote {
        let epoch = self.run.progress.epoch.saturating_sub(1);
        let quality = self.run.last.map(|last| last.quality).or(self.run.baseline);
        BestNote {
            epoch,
            first: epoch,
            quality: quality.unwrap_or(Quality::Classes { accuracy: 0.0 }),
        }
    }

    /// What ended the job, with what was written all the same: the `best` epoch, or what there is.
    fn explained(&self, error: TrainerError, best: Option<BestNote>, checkpoint: bool) -> TrainerError {
        let progress = self.run.progress;
        let out = self.job.targets().into_iter().next().unwrap_or_default();
        let what = match (best, progress.batch) {
            (Some(BestNote { epoch, quality, .. }), _) => {
                format!("after epoch {epoch}, the best so far (validation {quality}),")
            }
            (None, 0) => format!("after epoch {}", progress.epoch.saturating_sub(1)),
            (None, _) => "as it is in the middle of an epoch".to_owned(),
        };
        let written = best.unwrap_or_else(|| self.present());
        let mut text = format!("the model {what} was written to {}", out.display());
        match error {
            TrainerError::Diverged {
                step,
                sign,
                learning_rate,
                ..
            } => TrainerError::Diverged {
                step,
                sign,
                learning_rate,
                kept: Some(Kept {
                    epoch: written.epoch,
                    validation: written.quality,
                    text,
                }),
            },
            TrainerError::Cancelled => {
                if let Some(run) = self.job.run.as_ref().filter(|_| checkpoint) {
                    text.push_str(&format!(
                        "; frostline train --resume {} resumes it",
                        run.path.display()
                    ));
                }
                TrainerError::Stopped {
                    epoch: progress.epoch,
                    step: progress.step,
                    kept: Kept {
                        epoch: written.epoch,
                        validation: written.quality,
                        text,
                    },
                }
            }
            other => other,
        }
    }
}

/// Tells which run it is, and what it goes on from.
fn announce(job: &Job, found: Option<&Found>, events: &Events) {
    let Some(run) = &job.run else { return };
    let progress = found.map(|found| found.snapshot.note.at.progress);
    events(Event::Run {
        folder: run.path.clone(),
        checkpoint: found.map(|found| found.path.clone()),
        epoch: progress.map_or(1, |progress| progress.epoch),
        steps: progress.map_or(0, |progress| progress.step),
    });
    for told in found.into_iter().flat_map(|found| &found.told) {
        events(Event::Warning {
            message: told.clone(),
        });
    }
}

/// Has the run be where the checkpoint was written.
fn go_on(run: &mut Run, found: Found, feed: &FeedPlan) {
    let note = found.snapshot.note.at;
    (run.progress, run.last) = (note.progress, note.last);
    run.baseline = Some(note.baseline);
    run.best = match (note.best, found.best) {
        (Some(note), Some(best)) => {
            let (samples, tensors) = (Arc::clone(&feed.validation), best.predictions);
            let predictions = Predictions::of_tensors(feed.task, samples, &tensors);
            let kept = KeptEpoch {
                weights: best.weights,
                predictions: predictions.map(Arc::new),
            };
            Some(Best { note, kept })
        }
        _ => None,
    };
}

/// What a run is made of for the epochs of a phase.
fn parts(job: &Job, prepared: &mut Prepared, phase: &Phase) -> Result<RunParts, TrainerError> {
    let chosen = &prepared.chosen;
    let source = prepared
        .offer
        .at(&chosen.split, chosen.encoding, chosen.flow.request_samples)?;
    Ok(RunParts {
        feed: FeedPlan {
            first: phase.first,
            epochs: phase.last,
            ..prepared.data.feed.clone()
        },
        steering: Steering::towards(source),
        flow: chosen.flow,
        offer: Arc::clone(&prepared.offer),
        watch: prepared.watch.take().filter(|_| !job.spec.reproducible),
        bad: Vec::new(),
    })
}
