//! What a lane does for one run, on the sessions it owns.

use super::run::{Run, about, describe};
use super::{LanesConfig, StageSource};
use crate::binding::{Passage, Staging};
use crate::values::View;
use crate::{Interrupt, Session, SessionOptions};
use frostline_tensor::{OpError, Stage};

/// The sessions of one lane, the one used last at the end.
pub(super) struct Sessions {
    entries: Vec<Entry>,
    staging: Staging,
    options: SessionOptions,
    count_limit: usize,
    bytes_limit: usize,
}

struct Entry {
    stage: Stage,
    session: Session,
    /// Of the model, of which the weights are nearly all.
    bytes: usize,
}

impl Sessions {
    pub(super) fn new(config: &LanesConfig) -> Self {
        Self {
            entries: Vec::new(),
            staging: Staging::default(),
            options: SessionOptions {
                device: config.device,
                threads: config.threads_per_lane,
            },
            count_limit: config.sessions_per_lane,
            bytes_limit: config.session_bytes_per_lane,
        }
    }

    /// Runs the network of `run` and shows `take` its output. Says `opened` when the session is there.
    pub(super) fn execute<T>(
        &mut self,
        source: &dyn StageSource,
        run: &Run,
        opened: impl FnOnce(),
        take: impl FnOnce(View<'_>) -> Result<T, OpError>,
    ) -> Result<T, OpError> {
        let Run {
            stage,
            batch,
            interrupt,
        } = run;
        let mut staging = std::mem::take(&mut self.staging);
        let session = self.session(source, stage, interrupt)?;
        opened();
        if session.output(&stage.to).is_err() {
            return Err(lacks_output(stage));
        }
        let passage = Passage {
            from: &stage.from,
            to: &stage.to,
            batch,
        };
        let taken = session.run_bound(&mut staging, passage, interrupt, |output| {
            if output.shape.rows()? == batch.rows()? {
                return take(output);
            }
            Err(OpError::runtime(format!(
                "{}: made {} from {}, the rows differ",
                describe(stage),
                output.describe(),
                batch.describe()
            )))
        });
        self.staging = staging;
        taken.map_err(|error| about(stage, &error))?
    }

    /// Gives back the memory that is kept for the next run.
    pub(super) fn rest(&mut self) {
        self.staging = Staging::default();
    }

    fn session(
        &mut self,
        source: &dyn StageSource,
        stage: &Stage,
        interrupt: &Interrupt,
    ) -> Result<&mut Session, OpError> {
        let entry = match self.entries.iter().position(|entry| entry.stage == *stage) {
            Some(index) => self.entries.remove(index),
            None => self.open(source, stage, interrupt)?,
        };
        let last = self.entries.len();
        self.entries.push(entry);
        let entry = self.entries.get_mut(last);
        entry
            .map(|entry| &mut entry.session)
            .ok_or_else(|| OpError::runtime("the lane lost a session"))
    }

    /// Opens a session, dropping those unused for longest before it takes their room.
    fn open(
        &mut self,
        source: &dyn StageSource,
        stage: &Stage,
        interrupt: &Interrupt,
    ) -> Result<Entry, OpError> {
        let model = source.stage_model(stage)?;
        let bytes = model.len();
        while !self.entries.is_empty() && !self.has_room(bytes) {
            self.entries.remove(0);
        }
        let session =
            Session::open_until(&model, &self.options, interrupt).map_err(|error| about(stage, &error))?;
        Ok(Entry {
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
    OpError::not_found(format!("{}: the network has no such output", describe(stage)))
}
