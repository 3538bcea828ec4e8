//! Prepared stages. Each stage is saved once as ONNX Runtime's optimized model and a separate weights file in
//! kernel layout. Lanes map that file, so the weights use memory only once for all lanes.
//!
//! Each stage has a folder, which is named by a hash of all inputs that influence the contents. A disposable
//! process prepares the stage, and lanes receive it only after the keyed hash was verified. If verification
//! fails, the stage is prepared again. If preparation fails, the stage runs from its bytes.

mod name;
mod session;
mod store;
mod trial;

#[cfg(test)]
mod tests;

pub(crate) use store::{LaneFolder, Loan, StageGuard, WEIGHTS};

use crate::{EngineError, SessionOptions};
use name::Naming;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use store::Store;

use frostline_tensor::Stage;

/// Time after which a failed stage is prepared again, because the reason may be temporary, for example a full
/// disk.
const RETRY: Duration = Duration::from_secs(600);

/// ONNX Runtime 1.31 cannot read external weights if this folder is missing.
const OPENED_FILES: &str = "/proc/self/fd";

/// Maximum number of remembered failures.
const REMEMBERED: usize = 1024;

/// Prepared stages of a host.
pub(crate) struct Prepared {
    naming: Naming,
    store: Store,
    state: Mutex<PreparationMarks>,
    /// Signaled when a thread has finished with a stage.
    made: Condvar,
}

#[derive(Default)]
struct PreparationMarks {
    making: HashSet<String>,
    failed: HashMap<String, Instant>,
}

impl Prepared {
    /// Opens the prepared stages in `folder`, which are limited to `most_bytes`, for sessions with `options`.
    /// Logs a warning and returns `None` if the folder cannot be used.
    pub(crate) fn open(folder: &Path, most_bytes: u64, options: &SessionOptions) -> Option<Self> {
        Self::try_open(folder, most_bytes, options).map_err(|error| {
            let folder = folder.display();
            tracing::warn!(%folder, error, "cannot prepare stages, so each lane loads a copy of the weights");
        }).ok()
    }

    fn try_open(folder: &Path, most_bytes: u64, options: &SessionOptions) -> Result<Self, String> {
        if cfg!(target_os = "linux") && !Path::new(OPENED_FILES).exists() {
            return Err(format!(
                "ONNX Runtime needs {OPENED_FILES} to open weights, but /proc is not mounted; mount it"
            ));
        }
        let naming = Naming::new(options).map_err(|error: EngineError| error.to_string())?;
        Ok(Self {
            naming,
            store: Store::open(folder, most_bytes).map_err(|error| error.to_string())?,
            state: Mutex::default(),
            made: Condvar::new(),
        })
    }

    /// Returns the prepared `stage` if it exists.
    pub(crate) fn find(&self, stage: &Stage) -> Option<StageGuard> {
        self.store.find(&self.naming.name(stage))
    }

    /// Returns the prepared `stage`. If it does not exist yet, `make` prepares it in the folder that it
    /// receives. Concurrent callers with the same stage wait for the first one. Returns `None` if the stage
    /// cannot be prepared; the caller then runs it from its bytes.
    ///
    /// # Errors
    /// Returns the outer error of `make`, which does not count as a failure of the stage.
    pub(crate) fn get<E>(
        &self,
        stage: &Stage,
        make: impl FnOnce(&Path) -> Result<Result<(), String>, E>,
    ) -> Result<Option<StageGuard>, E> {
        let name = self.naming.name(stage);
        let _turn = self.turn(&name);
        if let Some(lent) = self.store.find(&name) {
            return Ok(Some(lent));
        }
        if self.failed_lately(&name) {
            return Ok(None);
        }
        let failure = match self.store.create_folder(&name) {
            Ok(folder) => match make(folder.path())? {
                Ok(()) => match self.store.finish(&name, folder) {
                    Ok(lent) => return Ok(Some(lent)),
                    Err(error) => error.to_string(),
                },
                Err(reason) => reason,
            },
            Err(error) => error.to_string(),
        };
        self.give_up(stage, name, &failure);
        Ok(None)
    }

    /// Removes all stages for whose models `keep` returns false, except stages that a lane is opening.
    pub(crate) fn retain(&self, keep: impl Fn(&str) -> bool) -> io::Result<()> {
        self.store.retain(|name| keep(name::model(name)))
    }

    /// Waits until no other thread is preparing the stage `name`.
    fn turn(&self, name: &str) -> Turn<'_> {
        let mut state = self.state.lock();
        self.made
            .wait_while(&mut state, |state| state.making.contains(name));
        state.making.insert(name.to_owned());
        Turn {
            prepared: self,
            name: name.to_owned(),
        }
    }

    fn failed_lately(&self, name: &str) -> bool {
        let state = self.state.lock();
        state.failed.get(name).is_some_and(|at| at.elapsed() < RETRY)
    }

    fn give_up(&self, stage: &Stage, name: String, reason: &str) {
        let Stage { model, from, to, .. } = stage;
        tracing::warn!(
            model,
            from,
            to,
            reason,
            "cannot prepare a stage, so each lane loads a copy of the weights"
        );
        let mut state = self.state.lock();
        if state.failed.len() >= REMEMBERED {
            state.failed.clear();
        }
        state.failed.insert(name, Instant::now());
    }
}

/// The exclusive right to look up and prepare a stage.
struct Turn<'a> {
    prepared: &'a Prepared,
    name: String,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.prepared.state.lock().making.remove(&self.name);
        self.prepared.made.notify_all();
    }
}
