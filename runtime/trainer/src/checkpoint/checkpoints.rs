//! The checkpoints of a run: the last two, and the best epochs that they refer to.

use super::file::{self, Tensors};
use super::snapshot::{BestFile, BestNote, JobNote, Snapshot};
use crate::evaluation::Predictions;
use crate::whole_file::{self, Create};
use frostline_tensor::ShapeError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many are kept: one may be found broken.
const KEPT: usize = 2;

/// Weights by their names, as they are merged into a model.
pub(crate) type Weights = Arc<Vec<(String, frostline_tensor::Tensor)>>;

/// An epoch to save: its weights, and their validation predictions if known.
#[derive(Clone)]
pub(crate) struct SavedEpoch {
    pub(crate) weights: Weights,
    pub(crate) predictions: Option<Arc<Predictions>>,
}

/// A saved epoch, loaded.
#[derive(Debug)]
pub(crate) struct LoadedEpoch {
    pub(crate) weights: Weights,
    /// [`Predictions::of_tensors`].
    pub(crate) predictions: Tensors,
}

/// A folder of checkpoints.
#[derive(Debug)]
pub(crate) struct CheckpointFolder {
    folder: PathBuf,
    create: Create,
    /// The best epoch whose weights are known to lie there.
    best: Option<BestNote>,
    /// The best epochs that the last checkpoints refer to, as far as known.
    referenced: Vec<u64>,
}

/// The newest valid checkpoint.
#[derive(Debug)]
pub(crate) struct FoundCheckpoint {
    pub(crate) path: PathBuf,
    pub(crate) snapshot: Snapshot,
    pub(crate) best: Option<LoadedEpoch>,
    /// Messages about broken checkpoints.
    pub(crate) told: Vec<String>,
    broken: Vec<PathBuf>,
}

impl CheckpointFolder {
    /// Opens the folder, made where it is not there, and removes what a job left half written.
    pub(crate) fn open(folder: PathBuf, create: Create) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        whole_file::sweep(&folder)?;
        Ok(Self {
            folder,
            create,
            best: None,
            referenced: Vec::new(),
        })
    }

    /// Writes a checkpoint, with the weights of the best epoch where they are not there yet, and removes those that are too many. Where it
    /// lies, and the bytes written.
    ///
    /// # Errors
    /// The system's; then all that was there is there still.
    pub(crate) fn save(
        &mut self,
        snapshot: &Snapshot,
        best: Option<&SavedEpoch>,
    ) -> Result<(PathBuf, u64), (PathBuf, io::Error)> {
        let path = self.folder.join(name(STEP, snapshot.note.at.progress.step));
        let failed = |error| (path.clone(), error);
        let mut bytes = 0;
        if let (Some(note), Some(epoch)) = (snapshot.note.at.best, best)
            && self.best != Some(note)
        {
            let of = BestFile {
                job: snapshot.note.job.clone(),
                best: note,
            };
            let path = self.best_path(note);
            let tensors = epoch.tensors().map_err(io::Error::other).map_err(failed)?;
            bytes += file::write(&path, self.create, &of, &tensors).map_err(failed)?;
            self.best = Some(note);
        }
        bytes += snapshot.write(&path, self.create).map_err(failed)?;
        let of = snapshot.note.at.best.map_or(0, |best| best.epoch.into());
        self.referenced.push(of);
        if self.referenced.len() > KEPT {
            self.referenced.remove(0);
        }
        // A file that stays only takes space.
        let _ = self.tidy();
        Ok((path, bytes))
    }

    fn best_path(&self, note: BestNote) -> PathBuf {
        self.folder.join(name(BEST, note.epoch.into()))
    }

    /// Removes all but the last two, and all best epochs that they do not refer to.
    fn tidy(&self) -> io::Result<()> {
        for (_, path) in self.numbered(STEP)?.into_iter().skip(KEPT) {
            fs::remove_file(path)?;
        }
        // After a resume, the reference of the previous checkpoint is unknown.
        let known = self.referenced.len() == KEPT;
        for (epoch, path) in self.numbered(BEST)? {
            if known && !self.referenced.contains(&epoch) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// The files of a kind, the latest first.
    fn numbered(&self, kind: &str) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let number = name.strip_prefix(kind).and_then(|name| name.strip_suffix(SUFFIX));
            if let Some(number) = number.and_then(|number| number.parse().ok()) {
                files.push((number, path));
            }
        }
        files.sort_unstable_by(|left, right| right.cmp(left));
        Ok(files)
    }

    /// The newest valid checkpoint; `None` where there is none at all.
    ///
    /// # Errors
    /// Why not one of those that are there can be used.
    pub(crate) fn newest(&self) -> Result<Option<FoundCheckpoint>, String> {
        let cannot = |error: io::Error| format!("cannot read the checkpoints: {error}");
        let mut broken: Vec<(PathBuf, String)> = Vec::new();
        for (_, path) in self.numbered(STEP).map_err(cannot)? {
            let snapshot = match Snapshot::read(&path) {
                Ok(snapshot) => snapshot,
                Err(error) => {
                    let told = format!("skipped the checkpoint {}: {error}", path.display());
                    broken.push((path, told));
                    continue;
                }
            };
            let mut told: Vec<String> = broken.iter().map(|(_, told)| told.clone()).collect();
            let best = self.load_best(&snapshot, &mut told);
            return Ok(Some(FoundCheckpoint {
                path,
                snapshot,
                best,
                told,
                broken: broken.into_iter().map(|(path, _)| path).collect(),
            }));
        }
        match broken.first() {
            None => Ok(None),
            Some((_, told)) => Err(format!("all {} checkpoints are corrupt; {told}", broken.len())),
        }
    }

    /// Resumes from `found`: removes broken checkpoints and newer best epochs, which will be trained again.
    pub(crate) fn resume_from(&mut self, found: &FoundCheckpoint) -> io::Result<()> {
        for path in &found.broken {
            fs::remove_file(path)?;
        }
        let note = found.snapshot.note.at.best;
        let last = note.map_or(0, |best| u64::from(best.epoch));
        for (epoch, path) in self.numbered(BEST)? {
            if epoch > last {
                fs::remove_file(path)?;
            }
        }
        self.best = note.filter(|_| found.best.is_some());
        Ok(())
    }

    fn load_best(&self, snapshot: &Snapshot, told: &mut Vec<String>) -> Option<LoadedEpoch> {
        let note = snapshot.note.at.best?;
        let path = self.best_path(note);
        let why = match read_best(&path) {
            Ok((of, tensors)) if of.best.epoch == note.epoch && of.job == snapshot.note.job => {
                return Some(LoadedEpoch::from_tensors(tensors));
            }
            Ok(_) => "it belongs to another job".to_owned(),
            Err(error) => error.to_string(),
        };
        told.push(format!(
            "lost the weights of epoch {}, the best so far: {}: {why}; the best later epoch will be written",
            note.epoch,
            path.display()
        ));
        None
    }
}

/// Prefix of the predictions' names, beside the weights.
const PREDICTIONS: &str = "predictions/";

impl SavedEpoch {
    fn tensors(&self) -> Result<Tensors, ShapeError> {
        let mut tensors = Tensors::clone(&self.weights);
        if let Some(predictions) = &self.predictions {
            let named = predictions.tensors()?.into_iter();
            tensors.extend(named.map(|(name, tensor)| (format!("{PREDICTIONS}{name}"), tensor)));
        }
        Ok(tensors)
    }
}

impl LoadedEpoch {
    fn from_tensors(tensors: Tensors) -> Self {
        let (mut weights, mut predictions) = (Tensors::new(), Tensors::new());
        for (name, tensor) in tensors {
            match name.strip_prefix(PREDICTIONS) {
                Some(name) => predictions.push((name.to_owned(), tensor)),
                None => weights.push((name, tensor)),
            }
        }
        Self {
            weights: Arc::new(weights),
            predictions,
        }
    }
}

/// Whether there is a checkpoint in `folder`, whole or not.
pub(super) fn any(folder: &Path) -> bool {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .map(|entry| entry.file_name())
        .any(|name| name.to_string_lossy().starts_with(STEP))
}

fn read_best(path: &Path) -> Result<(BestFile, Tensors), file::FileError> {
    file::read(path)
}

const STEP: &str = "step-";
const BEST: &str = "best-";
const SUFFIX: &str = ".checkpoint";

/// Zero-padded, so that names sort as numbers.
fn name(kind: &str, number: u64) -> String {
    format!("{kind}{number:09}{SUFFIX}")
}

impl FoundCheckpoint {
    /// Refuses a checkpoint of another job than `job`.
    pub(crate) fn check(&self, job: &JobNote) -> Result<(), String> {
        let of = &self.snapshot.note.job;
        if of.model_sha256 != job.model_sha256 {
            return Err(format!(
                "the checkpoint {} has the model '{}', this job has '{}'",
                self.path.display(),
                of.model,
                job.model
            ));
        }
        if of.settings != job.settings {
            return Err(format!(
                "the checkpoint {} has other settings",
                self.path.display()
            ));
        }
        Ok(())
    }
}
