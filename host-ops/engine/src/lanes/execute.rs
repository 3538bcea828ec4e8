//! What a lane does with one job, on the sessions it owns.

use super::shared::Job;
use super::{LanesConfig, StageSource};
use crate::values::View;
use crate::{Interrupt, Session, SessionOptions};
use frostline_tensor::{OpError, Stage};

/// The sessions of one lane, the one used last at the end.
pub(super) struct Sessions {
    entries: Vec<Entry>,
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
            options: SessionOptions {
                device: config.device,
                threads: config.threads_per_lane,
            },
            count_limit: config.sessions_per_lane,
            bytes_limit: config.session_bytes_per_lane,
        }
    }

    /// Runs `job` and shows `take` the batch of its stage's output. Says `opened` when the session is there.
    pub(super) fn execute<T>(
        &mut self,
        source: &dyn StageSource,
        job: &Job,
        opened: impl FnOnce(),
        take: impl FnOnce(View<'_>) -> Result<T, OpError>,
    ) -> Result<T, OpError> {
        let session = self.session(source, &job.stage, &job.interrupt)?;
        opened();
        if session.output(&job.stage.to).is_err() {
            return Err(lacks_output(&job.stage));
        }
        let inputs = [(job.stage.from.as_str(), &job.batch)];
        let taken = session.run_for(&job.stage.to, &inputs, &job.interrupt, |output| {
            if output.shape.rows()? == job.batch.rows()? {
                return take(output);
            }
            Err(OpError::runtime(format!(
                "{}: made {} from {}, the rows differ",
                describe(&job.stage),
                output.describe(),
                job.batch.describe()
            )))
        });
        taken.map_err(|error| OpError::new(error.code(), format!("{}: {error}", describe(&job.stage))))?
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
        let session = Session::open_until(&model, &self.options, interrupt)
            .map_err(|error| OpError::new(error.code(), format!("{}: {error}", describe(stage))))?;
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

/// What the stage is called in messages.
pub(super) fn describe(stage: &Stage) -> String {
    let model: String = stage.model.chars().take(12).collect();
    format!("model {model}, `{}` to `{}`", stage.from, stage.to)
}
