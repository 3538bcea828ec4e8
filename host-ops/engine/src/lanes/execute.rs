//! Executes engine batches with a lane's sessions.

use super::LanesConfig;
use super::batch::{BatchRun, Opened, Output, RunEnd, RunError, same_rows};
use super::run::describe;
use super::source::{Networks, StageModel};
use crate::binding::{StageRun, Staging};
use crate::{Interrupt, Session, SessionOptions};
use frostline_tensor::{OpError, Stage};
use std::time::Instant;

/// A lane's sessions, sorted by last use.
pub(super) struct Sessions {
    entries: Vec<LoadedSession>,
    staging: Staging,
    pub(super) options: SessionOptions,
    count_limit: usize,
    bytes_limit: usize,
}

struct LoadedSession {
    stage: Stage,
    session: Session,
    /// Size of the model in bytes, which is almost entirely weights.
    bytes: usize,
}

impl Sessions {
    /// Creates an empty set of sessions. With `arena`, they retain memory for the next execution.
    pub(super) fn new(config: &LanesConfig, arena: bool) -> Self {
        Self {
            entries: Vec::new(),
            staging: Staging::default(),
            options: SessionOptions {
                device: config.device,
                threads: config.threads_per_lane,
                arena,
                arena_bytes: config.arena_bytes,
                cuda: config.cuda,
                ..SessionOptions::default()
            },
            count_limit: config.sessions_per_lane,
            bytes_limit: config.session_bytes_per_lane,
        }
    }

    /// Executes `run` in this process, where memory is not measured. Calls `opened` when the session is
    /// ready.
    pub(super) fn run<T>(
        &mut self,
        source: &Networks,
        run: &BatchRun<'_>,
        opened: &dyn Fn(),
        take: impl FnOnce(&Output<'_>) -> Result<T, OpError>,
    ) -> RunEnd<T> {
        let begun = Instant::now();
        let mut since = begun;
        let mut session = None;
        let outcome = match run.batch.tensor() {
            Ok(batch) => {
                let asked = StageRun {
                    stage: run.stage,
                    batch: &batch,
                    interrupt: run.interrupt,
                };
                self.execute(
                    asked,
                    || Ok(StageModel::Bytes(source.bytes(run.stage)?)),
                    |fresh, _| {
                        since = Instant::now();
                        session = fresh.then(|| Opened {
                            time: since.saturating_duration_since(begun),
                            taken: None,
                            prepared: false,
                        });
                        opened();
                    },
                    |output| take(output).map_err(RunError::from),
                )
            }
            Err(error) => Err(error.into()),
        };
        RunEnd {
            outcome,
            memory: None,
            opened: session,
            time: since.elapsed(),
        }
    }

    /// Executes a stage and calls `take` with the output. `find` loads the network if no session is open.
    /// `opened` is called when the session is ready. It receives true if the session was opened for this
    /// execution, and the size of the retained buffers.
    pub(super) fn execute<T>(
        &mut self,
        run: StageRun<'_>,
        find: impl FnOnce() -> Result<StageModel, RunError>,
        opened: impl FnOnce(bool, usize),
        take: impl FnOnce(&Output<'_>) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let StageRun { stage, batch, .. } = run;
        let mut staging = std::mem::take(&mut self.staging);
        let (session, fresh) = self.session(find, &stage.network(), run.interrupt)?;
        opened(fresh, staging.bytes());
        if session.output(&stage.to).is_err() {
            return Err(lacks_output(stage).into());
        }
        let taken = session.run_bound(&mut staging, run, |view| {
            let output = Output::here(view);
            same_rows(stage, batch, &output)?;
            take(&output)
        });
        self.staging = staging;
        taken.map_err(|error| RunError::about(stage, &error))?
    }

    pub(super) fn close(&mut self, stage: &Stage) {
        let network = stage.network();
        self.entries.retain(|entry| entry.stage != network);
    }

    /// Releases the buffers that the next batch would reuse.
    pub(super) fn rest(&mut self) {
        self.staging = Staging::default();
    }

    fn session(
        &mut self,
        find: impl FnOnce() -> Result<StageModel, RunError>,
        stage: &Stage,
        interrupt: &Interrupt,
    ) -> Result<(&mut Session, bool), RunError> {
        let known = self.entries.iter().position(|entry| entry.stage == *stage);
        let entry = match known {
            Some(index) => self.entries.remove(index),
            None => self.open(find()?, stage, interrupt)?,
        };
        let last = self.entries.len();
        self.entries.push(entry);
        let entry = self.entries.get_mut(last);
        entry
            .map(|entry| (&mut entry.session, known.is_none()))
            .ok_or_else(|| OpError::runtime("the lane lost a session").into())
    }

    /// Opens a session. Closes the least recently used sessions first if the limits are reached.
    fn open(
        &mut self,
        model: StageModel,
        stage: &Stage,
        interrupt: &Interrupt,
    ) -> Result<LoadedSession, RunError> {
        let bytes = match &model {
            StageModel::Bytes(bytes) => bytes.len(),
            // The weights are mapped and shared.
            StageModel::Prepared(_) => 0,
        };
        while !self.entries.is_empty() && !self.has_room(bytes) {
            self.entries.remove(0);
        }
        let options = SessionOptions {
            precision: stage.precision,
            ..self.options.clone()
        };
        let session = match &model {
            StageModel::Bytes(bytes) => Session::open_until(bytes, &options, interrupt),
            StageModel::Prepared(folder) => Session::open_prepared(folder, &options, interrupt),
        };
        let session = session.map_err(|error| RunError::about(stage, &error))?;
        Ok(LoadedSession {
            stage: stage.clone(),
            session,
            bytes,
        })
    }

    fn has_room(&self, bytes: usize) -> bool {
        let held = self
            .entries
            .iter()
            .fold(bytes, |sum, entry| sum.saturating_add(entry.bytes));
        self.entries.len() < self.count_limit && held <= self.bytes_limit
    }
}

fn lacks_output(stage: &Stage) -> OpError {
    OpError::not_found(format!(
        "{}: the network does not have this output",
        describe(stage)
    ))
}
