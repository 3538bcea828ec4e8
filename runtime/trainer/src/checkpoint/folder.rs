//! A run's folder.

use super::keeper::{Keeper, Place};
use super::lock::{Kept, lock};
use super::record::{Recorder, recorded};
use super::run_folder::RunFolder;
use super::samples::SampleIndex;
use super::settings::{self, Settings};
use super::shelf::{Found, Shelf};
use super::snapshot::{JobNote, Maker};
use crate::compute::{blocking, session_options};
use crate::whole_file::{self, Create};
use crate::{Events, Job, Policy, Summary, TrainerError};
use frostline_engine::library_version;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) const CONFIG: &str = "config.json";
pub(super) const EVENTS: &str = "events.jsonl";
pub(super) const END: &str = "end.json";
const PLAN: &str = "plan.json";
const SAMPLES: &str = "samples.index";
pub(super) const CHECKPOINTS: &str = "checkpoints";

/// What `config.json` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Config {
    frostline: String,
    /// Seconds since 1970.
    pub(super) created: u64,
    #[serde(flatten)]
    pub(super) settings: Settings,
    /// See [`RunFolder::command`].
    #[serde(default)]
    pub(super) command: Map<String, Value>,
}

/// How a run ended, as `end.json` says it; without such a file it was killed, or runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(crate) enum Conclusion {
    /// The model was written after the last epoch.
    Finished,
    /// It was told to stop.
    Interrupted,
    /// This went wrong.
    Failed {
        /// In a line.
        error: String,
    },
}

/// The folder of a run while a job has it to itself.
pub(crate) struct Folder {
    path: PathBuf,
    create: Create,
    every: Option<u64>,
    settings: Settings,
    shelf: Shelf,
    /// What the job goes on from.
    found: Option<Found>,
    /// Hash of the samples that it went through.
    samples: Option<String>,
    maker: Maker,
    kept: Arc<Kept>,
}

impl Folder {
    /// Takes the folder of a checked job, if it has one, and what it is to go on from; refuses what would be another job.
    ///
    /// # Errors
    /// [`TrainerError::Run`], [`TrainerError::Resume`].
    pub(crate) async fn take(job: &Job) -> Result<Option<(Self, Arc<Kept>)>, TrainerError> {
        let Some(run) = job.run.clone() else {
            return Ok(None);
        };
        let job = job.clone();
        blocking(move || Self::open(&job, &run).map(Some)).await
    }

    fn open(job: &Job, run: &RunFolder) -> Result<(Self, Arc<Kept>), TrainerError> {
        let path = run.path.clone();
        let failed = |error: io::Error| TrainerError::Run {
            run: path.clone(),
            why: error.to_string(),
        };
        let refused = |why: String| TrainerError::Resume {
            run: path.clone(),
            why,
        };
        if run.resume && !path.join(CONFIG).is_file() {
            return Err(refused(no_run()));
        }
        fs::create_dir_all(&path).map_err(failed)?;
        let kept = lock(&path).map_err(failed)?.ok_or_else(|| TrainerError::Run {
            run: path.clone(),
            why: "another job runs in it".to_owned(),
        })?;
        if !run.resume && path.join(CONFIG).exists() {
            return Err(TrainerError::Run {
                run: path.clone(),
                why: "there is a run already; go on with it (--resume), or take another folder".to_owned(),
            });
        }
        whole_file::sweep(&path).map_err(failed)?;
        let settings = Settings::of(job)?;
        let mut shelf = Shelf::open(path.join(CHECKPOINTS), run.create).map_err(failed)?;
        let maker = Maker {
            frostline: env!("CARGO_PKG_VERSION").to_owned(),
            library: library_version().unwrap_or_default(),
            device: job.device.to_string(),
            threads: session_options(job.device, job.threads).threads,
        };
        let (mut found, mut created) = (None, now());
        if run.resume {
            let config = config(&path).map_err(failed)?;
            found = shelf.newest().map_err(&refused)?;
            let begun = found
                .as_ref()
                .map_or(0, |found| found.snapshot.note.at.progress.epoch_begun());
            if let Some(why) = config.settings.refusal(&settings, &job.recipe, begun) {
                return Err(refused(why));
            }
            created = config.created;
        }
        if let Some(found) = &found {
            found
                .check(&job_note(&settings, String::new()))
                .map_err(&refused)?;
            if job.reproducible && found.snapshot.note.maker != maker {
                return Err(refused(other_maker(&found.snapshot.note.maker, &maker)));
            }
            shelf.adopt(found).map_err(failed)?;
        }
        let config = Config {
            frostline: env!("CARGO_PKG_VERSION").to_owned(),
            created,
            settings: settings.clone(),
            command: run.command.clone().into_iter().map(without_secrets).collect(),
        };
        write_json(&path.join(CONFIG), run.create, &config).map_err(failed)?;
        match fs::remove_file(path.join(END)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let kept = Arc::new(kept);
        let folder = Self {
            create: run.create,
            every: run.checkpoint_steps,
            settings,
            shelf,
            samples: found
                .as_ref()
                .map(|found| found.snapshot.note.job.samples.clone()),
            found,
            maker,
            path,
            kept: Arc::clone(&kept),
        };
        Ok((folder, kept))
    }

    /// Has what `events` are told written to the folder as well, soon after.
    ///
    /// # Errors
    /// [`TrainerError::Run`].
    pub(crate) fn recorded(&self, events: &Events) -> Result<(Events, Recorder), TrainerError> {
        recorded(&self.path.join(EVENTS), events).map_err(|error| self.failed(&error))
    }

    /// The job that the run was: with its split and encoding, where bits count and they were chosen.
    pub(crate) fn fixed(&self, mut job: Job) -> Job {
        if let Some(found) = self.found.as_ref().filter(|_| job.reproducible) {
            let note = &found.snapshot.note.at;
            job.split = Policy::Fixed(note.split.clone());
            job.encoding = Some(note.encoding);
        }
        job
    }

    /// Holds the samples against those of the run, and keeps them where it begins.
    ///
    /// # Errors
    /// [`TrainerError::Resume`] where they changed, [`TrainerError::Run`].
    pub(crate) async fn admit(&self, samples: SampleIndex) -> Result<JobNote, TrainerError> {
        let (path, create, digest) = (self.path.join(SAMPLES), self.create, samples.digest.clone());
        let then = self.samples.clone();
        let run = self.path.clone();
        blocking(move || {
            let before = SampleIndex::read(&path).ok();
            if then.is_some_and(|then| then != samples.digest) {
                let became =
                    before.map_or_else(String::new, |before| format!(": {}", before.until(&samples)));
                return Err(TrainerError::Resume {
                    run,
                    why: format!("the data set is another one{became}"),
                });
            }
            let written = samples.write(&path, create).map(drop);
            written.map_err(|error| TrainerError::Run {
                run,
                why: error.to_string(),
            })
        })
        .await?;
        Ok(job_note(&self.settings, digest))
    }

    /// Keeps the plan.
    ///
    /// # Errors
    /// [`TrainerError::Run`].
    pub(crate) fn plan(&self, plan: &Summary) -> Result<(), TrainerError> {
        write_json(&self.path.join(PLAN), self.create, plan).map_err(|error| self.failed(&error))
    }

    /// What the job goes on from; once.
    pub(crate) fn take_found(&mut self) -> Option<Found> {
        self.found.take()
    }

    /// What writes the checkpoints of the `job`.
    pub(crate) fn keeper(self, job: JobNote, events: &Events) -> Keeper {
        let place = Place {
            shelf: self.shelf,
            kept: self.kept,
            every: self.every,
        };
        Keeper::new(place, job, self.maker, events)
    }

    fn failed(&self, error: &io::Error) -> TrainerError {
        TrainerError::Run {
            run: self.path.clone(),
            why: error.to_string(),
        }
    }
}

/// Says how the run in `folder` ended, as well as that can be said.
pub(crate) fn conclude(folder: &Path, conclusion: &Conclusion) {
    // Without it the run counts as interrupted, which can be gone on with.
    let _ = write_json(&folder.join(END), |path| File::create_new(path), conclusion);
}

pub(super) fn no_run() -> String {
    format!("there is no run: it has no {CONFIG}")
}

/// A word of a command without what opens its URLs.
fn without_secrets((name, value): (String, Value)) -> (String, Value) {
    let word = |value: Value| match value {
        Value::String(text) if text.contains("://") => settings::without_secrets(&text).into(),
        value => value,
    };
    let value = match value {
        Value::Array(words) => words.into_iter().map(word).collect(),
        value => word(value),
    };
    (name, value)
}

/// What a run's `config.json` says.
pub(super) fn config(folder: &Path) -> io::Result<Config> {
    let text = fs::read(folder.join(CONFIG))?;
    serde_json::from_slice(&text).map_err(|error| io::Error::other(format!("{CONFIG}: {error}")))
}

pub(super) fn conclusion(folder: &Path) -> Option<Conclusion> {
    serde_json::from_slice(&fs::read(folder.join(END)).ok()?).ok()
}

fn write_json(path: &Path, create: Create, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    whole_file::write_to(path, create, |file| file.write_all(&text)).map(drop)
}

fn job_note(settings: &Settings, samples: String) -> JobNote {
    let [model, model_sha256] = settings.model();
    JobNote {
        model,
        model_sha256,
        settings: settings.digest(),
        samples,
    }
}

/// In what the maker of a checkpoint is another one; bits may differ then.
fn other_maker(then: &Maker, now: &Maker) -> String {
    let pairs = [
        ("Frostline", &then.frostline, &now.frostline),
        ("ONNX Runtime", &then.library, &now.library),
        ("--device", &then.device, &now.device),
    ];
    let threads = [then.threads, now.threads].map(|threads| threads.to_string());
    let [old, new] = &threads;
    let mut pairs = pairs.into_iter().chain([("threads", old, new)]);
    let other = pairs.find(|(_, then, now)| then != now);
    let (what, then, now) = other.map_or(("something", "", ""), |(what, then, now)| (what, then, now));
    format!("it is --reproducible, and {what} was {then} and is {now} now")
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
