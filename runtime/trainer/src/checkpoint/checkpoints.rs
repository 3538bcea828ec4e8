//! Manages checkpoints: the last two of a run, with the best epochs.

use super::file::{self, Tensors};
use super::snapshot::{BestFile, BestNote, JobNote, Snapshot};
use crate::evaluation::Predictions;
use crate::whole_file::{self, Create};
use frostline_tensor::ShapeError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Checkpoints retained per run. The older one is used if the newest is corrupt.
const RETAINED_CHECKPOINTS: usize = 2;

/// Weights by name, ready to be merged into a model.
pub(crate) type Weights = Arc<Vec<(String, frostline_tensor::Tensor)>>;

/// An epoch to save, with weights and optional validation predictions.
#[derive(Clone)]
pub(crate) struct SavedEpoch {
    pub(crate) weights: Weights,
    pub(crate) predictions: Option<Arc<Predictions>>,
}

/// A saved epoch, loaded.
#[derive(Debug)]
pub(crate) struct LoadedEpoch {
    pub(crate) weights: Weights,
    /// Input of [`Predictions::of_tensors`].
    pub(crate) predictions: Tensors,
}

/// Checkpoint folder of a run.
#[derive(Debug)]
pub(crate) struct CheckpointFolder {
    folder: PathBuf,
    create: Create,
    /// The best epoch already stored in the folder.
    best: Option<BestNote>,
    /// Best epochs referenced by the last checkpoints, or 0. Incomplete after a resume.
    referenced: Vec<u64>,
}

/// The newest valid checkpoint.
#[derive(Debug)]
pub(crate) struct FoundCheckpoint {
    pub(crate) path: PathBuf,
    pub(crate) snapshot: Snapshot,
    pub(crate) best: Option<LoadedEpoch>,
    /// Warnings about corrupt checkpoints and missing weights.
    pub(crate) warnings: Vec<String>,
    broken: Vec<PathBuf>,
}

impl CheckpointFolder {
    /// Opens the folder, creates it if it does not exist, and removes incomplete files.
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

    /// Writes a checkpoint and, if they are not stored yet, the weights of the best epoch. Then removes old
    /// checkpoints. Returns the path and the number of bytes written.
    ///
    /// # Errors
    /// Returns the path of the file that cannot be written, and the error. Existing checkpoints are kept.
    pub(crate) fn save(
        &mut self,
        snapshot: &Snapshot,
        best: Option<&SavedEpoch>,
    ) -> Result<(PathBuf, u64), (PathBuf, io::Error)> {
        let mut bytes = 0;
        if let (Some(note), Some(epoch)) = (snapshot.note.at.best, best)
            && self.best != Some(note)
        {
            let of = BestFile {
                job: snapshot.note.job.clone(),
                best: note,
            };
            let path = self.best_path(note);
            let tensors = epoch.tensors().map_err(io::Error::other);
            let written = tensors.and_then(|tensors| file::write(&path, self.create, &of, &tensors));
            bytes += written.map_err(|error| (path, error))?;
            self.best = Some(note);
        }
        let path = self.folder.join(name(STEP, snapshot.note.at.progress.step));
        match snapshot.write(&path, self.create) {
            Ok(written) => bytes += written,
            Err(error) => return Err((path, error)),
        }
        let of = snapshot.note.at.best.map_or(0, |best| best.epoch.into());
        self.referenced.push(of);
        if self.referenced.len() > RETAINED_CHECKPOINTS {
            self.referenced.remove(0);
        }
        // A leftover file only wastes space.
        let _ = self.tidy();
        Ok((path, bytes))
    }

    fn best_path(&self, note: BestNote) -> PathBuf {
        self.folder.join(name(BEST, note.epoch.into()))
    }

    /// Removes old checkpoints, and best epochs without a reference.
    fn tidy(&self) -> io::Result<()> {
        for (_, path) in self.numbered(STEP)?.into_iter().skip(RETAINED_CHECKPOINTS) {
            fs::remove_file(path)?;
        }
        // After a resume, the reference of the previous checkpoint is unknown.
        let known = self.referenced.len() == RETAINED_CHECKPOINTS;
        for (epoch, path) in self.numbered(BEST)? {
            if known && !self.referenced.contains(&epoch) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Lists files with the prefix `kind`, sorted by descending number.
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

    /// Returns the newest valid checkpoint, or `None` if the folder contains no checkpoints.
    ///
    /// # Errors
    /// Returns a message if the folder cannot be read or all checkpoints are corrupt.
    pub(crate) fn newest(&self) -> Result<Option<FoundCheckpoint>, String> {
        let mut broken: Vec<(PathBuf, String)> = Vec::new();
        for (_, path) in self
            .numbered(STEP)
            .map_err(|error| format!("cannot read the checkpoints: {error}"))?
        {
            let snapshot = match Snapshot::read(&path) {
                Ok(snapshot) => snapshot,
                Err(error) => {
                    let told = format!("skipped the checkpoint {}: {error}", path.display());
                    broken.push((path, told));
                    continue;
                }
            };
            let mut warnings: Vec<String> = broken.iter().map(|(_, told)| told.clone()).collect();
            let best = self.load_best(&snapshot, &mut warnings);
            return Ok(Some(FoundCheckpoint {
                path,
                snapshot,
                best,
                warnings,
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
        let why = match file::read::<BestFile>(&path) {
            Ok((of, tensors)) if of.best.epoch == note.epoch && of.job == snapshot.note.job => {
                return Some(LoadedEpoch::from_tensors(tensors));
            }
            Ok(_) => "the file belongs to another job".to_owned(),
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

/// Prefix that distinguishes tensors of predictions from weights.
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
        let mut weights = Tensors::new();
        let mut predictions = Tensors::new();
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

/// Returns true if `folder` contains a checkpoint, even a corrupt one.
pub(super) fn any(folder: &Path) -> bool {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .map(|entry| entry.file_name())
        .any(|name| name.to_string_lossy().starts_with(STEP))
}

const STEP: &str = "step-";
const BEST: &str = "best-";
const SUFFIX: &str = ".checkpoint";

/// Zero-padded, so that names sort as numbers.
fn name(kind: &str, number: u64) -> String {
    format!("{kind}{number:09}{SUFFIX}")
}

impl FoundCheckpoint {
    /// Returns a message if the checkpoint has another model or other settings than `job`.
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
