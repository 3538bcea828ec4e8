//! Run folders, each locked by one job.

use super::checkpoints::{CheckpointFolder, FoundCheckpoint};
use super::config::{self, digest};
use super::lock::{RunLock, lock};
use super::record::{Recorder, recorded};
use super::run_folder::RunFolder;
use super::samples::{Rearrangement, SampleIndex};
use super::snapshot::{Environment, JobNote};
use super::writer::CheckpointWriter;
use crate::whole_file::{self, Create};
use crate::{EncodingChoice, Events, Job, JobSpec, OnBadSample, Policy, Summary, TrainerError, blocking};
use frostline_compute::session_options;
use frostline_engine::library_version;
use frostline_job::folder::{CHECKPOINTS, CONFIG, END, EVENTS, FinalState, PLAN, SAMPLES};
use parking_lot::Mutex;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

pub(crate) struct LockedRun {
    path: PathBuf,
    create: Create,
    /// Recorded settings of the job.
    spec: JobSpec,
    checkpoints: CheckpointFolder,
    /// The checkpoint to resume from.
    found: Option<FoundCheckpoint>,
    /// Hash of the samples in the checkpoint, if one was found.
    samples: Option<String>,
    maker: Environment,
    run_lock: Arc<RunLock>,
}

impl LockedRun {
    /// Locks the run folder of a checked job, if it has one, and loads the checkpoint to resume from.
    ///
    /// # Errors
    /// Returns [`TrainerError::Run`] if the folder cannot be used, and [`TrainerError::Resume`] if it belongs
    /// to a different job.
    pub(crate) async fn open_for(job: &Job) -> Result<Option<(Self, Arc<RunLock>)>, TrainerError> {
        let Some(run) = job.run.clone() else {
            return Ok(None);
        };
        let job = job.clone();
        blocking(move || Self::open(&job, &run).map(Some)).await
    }

    fn open(job: &Job, run: &RunFolder) -> Result<(Self, Arc<RunLock>), TrainerError> {
        let path = run.path.clone();
        let then = run.resume.then(|| config::recorded_job(&path)).transpose()?;
        let kept = Arc::new(lock_folder(run)?);
        whole_file::sweep(&path).map_err(failed(&path))?;
        let mut spec = job.recorded()?;
        let checkpoints = CheckpointFolder::open(path.join(CHECKPOINTS), run.create);
        let mut checkpoints = checkpoints.map_err(failed(&path))?;
        let maker = maker(job);
        let mut found = None;
        if let Some(then) = then {
            spec.created = then.created;
            found = checkpoints
                .newest()
                .map_err(|why| TrainerError::resume(&path, why))?;
            check_same(&then, &spec, found.as_ref(), &maker)
                .map_err(|why| TrainerError::resume(&path, why))?;
        }
        if let Some(found) = &found {
            checkpoints.resume_from(found).map_err(failed(&path))?;
        }
        write_json(&path.join(CONFIG), run.create, &spec).map_err(failed(&path))?;
        match fs::remove_file(path.join(END)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&path)(error)),
            _ => {}
        }
        let folder = Self {
            create: run.create,
            spec,
            checkpoints,
            samples: found
                .as_ref()
                .map(|found| found.snapshot.note.job.samples.clone()),
            found,
            maker,
            path,
            run_lock: Arc::clone(&kept),
        };
        Ok((folder, kept))
    }

    /// Also writes `events` to the folder, asynchronously.
    pub(crate) fn recorded(&self, events: &Events) -> Result<(Events, Recorder), TrainerError> {
        recorded(&self.path.join(EVENTS), events).map_err(failed(&self.path))
    }

    /// Returns `job` with the split and encoding of the checkpoint if it is reproducible and resumes.
    pub(crate) fn with_recorded_split(&self, mut job: Job) -> Job {
        if let Some(found) = self.found.as_ref().filter(|_| job.spec.reproducible) {
            let note = &found.snapshot.note.at;
            job.spec.split = Policy::Fixed(note.split.clone());
            job.spec.encoding = EncodingChoice::Fixed(note.encoding);
        }
        job
    }

    /// Compares the samples with those of the resumed run, and records them in a new run. If they differ and
    /// the job skips bad samples, returns how to continue with the samples that did not change.
    ///
    /// # Errors
    /// Returns [`TrainerError::DataChanged`] or, if skipping samples would not help, [`TrainerError::Resume`]
    /// if the samples differ, and [`TrainerError::Run`] if they cannot be recorded.
    pub(crate) async fn check_samples(
        &self,
        samples: SampleIndex,
    ) -> Result<(JobNote, Option<Rearrangement>), TrainerError> {
        let path = self.path.join(SAMPLES);
        let create = self.create;
        let digest = self
            .samples
            .clone()
            .unwrap_or_else(|| samples.digest().to_owned());
        let note = job_note(&self.spec, digest.clone());
        let skips = self.spec.on_bad_sample == OnBadSample::Skip;
        let run = self.path.clone();
        let rearranged = blocking(move || {
            if digest == samples.digest() {
                let written = samples.write(&path, create).map(|_| None);
                return written.map_err(failed(&run));
            }
            let recorded = SampleIndex::read(&path)
                .ok()
                .filter(|then| then.digest() == digest);
            let recorded = recorded.ok_or_else(|| {
                let why = "samples changed, or the checkpoint is from another version of Frostline";
                TrainerError::resume(&run, why)
            })?;
            let found = recorded.rearrangement(&samples);
            let found = found
                .ok_or_else(|| TrainerError::resume(&run, "the classes of the data set have changed"))?;
            match skips {
                true => Ok(Some(found)),
                false => Err(TrainerError::DataChanged {
                    difference: found.difference.to_string(),
                    run,
                }),
            }
        });
        Ok((note, rearranged.await?))
    }

    /// Writes the plan to the folder.
    pub(crate) fn plan(&self, plan: &Summary) -> Result<(), TrainerError> {
        write_json(&self.path.join(PLAN), self.create, plan).map_err(failed(&self.path))
    }

    /// Takes the checkpoint to resume from. Returns `None` on later calls.
    pub(crate) fn take_found(&mut self) -> Option<FoundCheckpoint> {
        self.found.take()
    }

    pub(crate) fn checkpoint_writer(self, job: JobNote, events: &Events) -> CheckpointWriter {
        CheckpointWriter {
            checkpoints: Arc::new(Mutex::new(self.checkpoints)),
            run_lock: self.run_lock,
            job,
            maker: self.maker,
            every: self.spec.checkpoint_steps,
            events: Arc::clone(events),
            last: Instant::now(),
            writing: None,
            newest: None,
        }
    }
}

/// Creates and locks a run's folder.
fn lock_folder(run: &RunFolder) -> Result<RunLock, TrainerError> {
    fs::create_dir_all(&run.path).map_err(failed(&run.path))?;
    let why = match lock(&run.path).map_err(failed(&run.path))? {
        None => "another job is using the folder",
        Some(_) if !run.resume && run.path.join(CONFIG).exists() => {
            "the folder already contains a run; resume it, or choose a different folder"
        }
        Some(kept) => return Ok(kept),
    };
    Err(TrainerError::Run {
        run: run.path.clone(),
        why: why.to_owned(),
    })
}

/// Checks that the job `now` may resume the run `then` from the checkpoint `found`. Returns the reason if it
/// may not.
fn check_same(
    then: &JobSpec,
    now: &JobSpec,
    found: Option<&FoundCheckpoint>,
    maker: &Environment,
) -> Result<(), String> {
    let begun = found.map_or(0, |found| found.snapshot.note.at.progress.epoch_begun());
    if let Some(why) = frostline_job::refusal(then, now, begun) {
        return Err(why);
    }
    let Some(found) = found else { return Ok(()) };
    found.check(&job_note(now, String::new()))?;
    if now.reproducible && found.snapshot.note.maker != *maker {
        return Err(environment_difference(&found.snapshot.note.maker, maker));
    }
    Ok(())
}

/// Describes the software and device of `job`.
fn maker(job: &Job) -> Environment {
    Environment {
        frostline: env!("CARGO_PKG_VERSION").to_owned(),
        library: library_version().unwrap_or_default(),
        device: job.device.to_string(),
        threads: session_options(job.device, job.spec.threads).threads,
    }
}

/// Converts errors of the folder `run`.
fn failed(run: &Path) -> impl FnOnce(io::Error) -> TrainerError {
    move |error| TrainerError::Run {
        run: run.to_owned(),
        why: error.to_string(),
    }
}

/// Records how the run in `folder` ended, best effort.
pub(crate) fn write_ending(folder: &Path, ending: &FinalState) {
    // Without it the run counts as interrupted and can be resumed.
    let _ = write_json(&folder.join(END), |path| File::create_new(path), ending);
}

fn write_json(path: &Path, create: Create, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    whole_file::write_to(path, create, |file| file.write_all(&text)).map(drop)
}

fn job_note(spec: &JobSpec, samples: String) -> JobNote {
    let stem = spec.model.as_deref().and_then(Path::file_stem);
    JobNote {
        model: stem.unwrap_or_default().to_string_lossy().into_owned(),
        model_sha256: spec.model_sha256.clone().unwrap_or_default(),
        settings: digest(spec),
        samples,
    }
}

/// Reports the first difference between two environments. Such differences can change low-order bits.
fn environment_difference(then: &Environment, now: &Environment) -> String {
    let pairs = [
        ("Frostline", &then.frostline, &now.frostline),
        ("ONNX Runtime", &then.library, &now.library),
        ("device", &then.device, &now.device),
    ];
    let threads = [then.threads, now.threads].map(|threads| threads.to_string());
    let [old, new] = &threads;
    let mut pairs = pairs.into_iter().chain([("threads", old, new)]);
    let other = pairs.find(|(_, then, now)| then != now);
    let (what, then, now) = other.map_or(("something", "", ""), |(what, then, now)| (what, then, now));
    format!("a reproducible job requires the same {what}: it is {now}, the checkpoint has {then}")
}
