use crate::whole_file::Create;
use serde_json::{Map, Value};
use std::fs::File;
use std::path::PathBuf;

/// Where a job keeps what it needs to go on, and its results. `docs/runs.md` says what lies there.
#[derive(Debug, Clone)]
pub struct RunFolder {
    /// The folder; made where it is not there. It holds one run.
    pub path: PathBuf,
    /// Whether to go on with the run that is there.
    pub resume: bool,
    /// Steps from one checkpoint to the next, at least 1. There is one after each epoch anyway, and without this one at least every five minutes.
    pub checkpoint_steps: Option<u64>,
    /// What else a command needs to go on with the run, such as where its files and hosts are; kept as it is, but for passwords and signatures in URLs.
    pub command: Map<String, Value>,
    /// Opens files of checkpoints.
    pub(crate) create: Create,
}

impl RunFolder {
    /// The folder of a run that begins.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            resume: false,
            checkpoint_steps: None,
            command: Map::new(),
            create: |path| File::create_new(path),
        }
    }

    /// The folder of a run that is to go on from its newest checkpoint.
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

const MODEL: &str = "tuned.onnx";
