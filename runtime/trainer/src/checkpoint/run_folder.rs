use crate::whole_file::Create;
use frostline_job::folder::MODEL;
use std::fs::File;
use std::path::PathBuf;

/// Where a job stores its checkpoints and results. `docs/runs.md` lists the files.
#[derive(Debug, Clone)]
pub struct RunFolder {
    /// The folder; made where it is not there. It holds one run.
    pub path: PathBuf,
    /// Whether to resume the run that is there.
    pub resume: bool,
    /// Opens files of checkpoints.
    pub(crate) create: Create,
}

impl RunFolder {
    /// The folder of a new run.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            resume: false,
            create: |path| File::create_new(path),
        }
    }

    /// The folder of a run that resumes from its newest checkpoint.
    pub fn resumed(path: impl Into<PathBuf>) -> Self {
        Self {
            resume: true,
            ..Self::new(path)
        }
    }

    /// Where the tuned model goes.
    pub fn model(&self) -> PathBuf {
        self.path.join(MODEL)
    }
}
