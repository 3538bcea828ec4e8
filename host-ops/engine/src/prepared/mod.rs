//! Prepared stages: each stage saved once as ONNX Runtime's optimized model, its weights as kernels read them in a file of their own. Lanes
//! map that file, so its weights take memory once, however many lanes run the stage.
//!
//! A stage has a folder of its own, named by all that what lies in it depends on. It is made in a process that is thrown away, and a lane
//! is told of it only when its keyed hash is right. Whatever is wrong with it, the stage is prepared anew; and where that cannot be done,
//! it runs from its bytes.

mod name;
mod store;
mod trial;

#[cfg(test)]
mod tests;

pub(crate) use store::{LaneFolder, Lent, Loan, NETWORK, WEIGHTS};
pub(crate) use trial::try_out;

use crate::{EngineError, SessionOptions};
use name::Naming;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use store::Store;

use frostline_tensor::Stage;

/// After it failed, a stage is not prepared for so long: a full disk may not be full any more.
const RETRY: Duration = Duration::from_secs(600);

/// What ONNX Runtime 1.31 refuses to read weights beside a network without.
const OPENED_FILES: &str = "/proc/self/fd";

/// Stages of which it is remembered that they could not be prepared.
const REMEMBERED: usize = 1024;

/// The prepared stages of a host.
pub(crate) struct Prepared {
    naming: Naming,
    store: Store,
    state: Mutex<State>,
    /// Signaled when a stage has been prepared, or could not be.
    made: Condvar,
}

#[derive(Default)]
struct State {
    making: HashSet<String>,
    failed: HashMap<String, Instant>,
}

impl Prepared {
    /// Those in `folder`, of which at most `most_bytes` are kept, for sessions with these options. `None`, with a warning, where they
    /// cannot be kept.
    pub(crate) fn open(folder: &Path, most_bytes: u64, options: &SessionOptions) -> Option<Self> {
        let opened = || -> Result<Self, String> {
            if cfg!(target_os = "linux") && !Path::new(OPENED_FILES).exists() {
                return Err(format!(
                    "ONNX Runtime finds files of weights by {OPENED_FILES}, which is not there; mount /proc"
                ));
            }
            let naming = Naming::new(options).map_err(|error: EngineError| error.to_string())?;
            Ok(Self {
                naming,
                store: Store::open(folder, most_bytes).map_err(|error| error.to_string())?,
                state: Mutex::default(),
                made: Condvar::new(),
            })
        };
        let warn = |error: String| {
            let folder = folder.display();
            tracing::warn!(%folder, error, "stages cannot be prepared: each lane keeps a copy of their weights");
        };
        opened().map_err(warn).ok()
    }

    /// The prepared `stage`, made by `make` in the folder that it is given unless it is there. Of callers that want the same stage at a
    /// time one makes it and the others wait. `None` when it cannot be had: it runs from its bytes.
    ///
    /// # Errors
    /// Those of `make` that say nothing of preparing.
    pub(crate) fn get<E>(
        &self,
        stage: &Stage,
        make: impl FnOnce(&Path) -> Result<Result<(), String>, E>,
    ) -> Result<Option<Lent>, E> {
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

    /// Removes stages of models that `keep` does not, but those that a lane is about to open.
    pub(crate) fn retain(&self, keep: impl Fn(&str) -> bool) -> io::Result<()> {
        self.store.retain(|name| keep(name::model(name)))
    }

    /// Waits until nobody makes the stage `name`.
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
            "a stage cannot be prepared: each lane keeps a copy of its weights"
        );
        let mut state = self.state.lock();
        if state.failed.len() >= REMEMBERED {
            state.failed.clear();
        }
        state.failed.insert(name, Instant::now());
    }
}

/// The right to look for a stage, and to make it.
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
