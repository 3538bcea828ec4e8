use crate::whole_file::Create;
use frostline_job::folder::MODEL;
use std::fs::File;
use std::path::PathBuf;

/// Folder for the checkpoints and results of a job. `docs/runs.md` lists the files.
#[derive(Debug, Clone)]
pub struct RunFolder {
    /// Path of the folder, created if it does not exist. Each run needs a separate folder.
    pub path: PathBuf,
    /// Whether to resume the existing run.
    pub resume: bool,
    /// Opens files of checkpoints.
    pub(crate) create: Create,
}

impl RunFolder {
    /// Creates a new run in `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            resume: false,
            create: |path| File::create_new(path),
        }
    }

    /// Resumes the run in `path` from the newest checkpoint.
    pub fn resumed(path: impl Into<PathBuf>) -> Self {
        Self {
            resume: true,
            ..Self::new(path)
        }
    }

    /// Path of the tuned model.
    pub fn model(&self) -> PathBuf {
        self.path.join(MODEL)
    }
}
