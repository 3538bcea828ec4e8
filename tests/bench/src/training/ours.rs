//! Frostline's training steps with resident weights in the engine.

use super::{CLASSES, LEARNING_RATE, OPTIMIZER, THREADS};
use anyhow::{Context, Result, bail};
use frostline_engine::{Interrupt, ResidentSlot, ResidentState, Session, SessionOptions};
use frostline_graph::Model;
use frostline_tensor::Tensor;
use frostline_training::{CpuSteps, TrainingGraph};
use std::borrow::Cow;
use std::time::Instant;

pub(super) struct Ours {
    step: Session,
    /// Weight update after all micro-batches, if the batch is divided.
    update: Option<Session>,
    /// Rows per micro-batch.
    rows: usize,
    state: ResidentState,
    graph: TrainingGraph,
    activations: Tensor,
    labels: Tensor,
}

impl Ours {
    /// Prepares the training steps of `suffix` for batches with these dimensions, as in a job.
    pub(super) fn open(suffix: &Model, dims: &[usize]) -> Result<Self> {
        let batch = *dims.first().context("a batch without dimensions")?;
        let CpuSteps { settings, rows, .. } = CpuSteps::of_batch(suffix, batch, &OPTIMIZER.into())?;
        if !batch.is_multiple_of(rows) {
            bail!("a batch of {batch} cannot be divided into micro-batches of {rows} rows");
        }
        let mut graph = TrainingGraph::build(suffix, rows, &settings)?;
        let update = settings
            .accumulates
            .then(|| session(&TrainingGraph::update(suffix, &settings)?));
        let slots = std::mem::take(&mut graph.state).into_iter();
        let slots = slots.map(|slot| ResidentSlot {
            input: slot.input,
            output: slot.output,
            initial: slot.initial,
        });
        let labels = (0..batch as i64).map(|row| row * 31 % CLASSES as i64);
        Ok(Self {
            step: session(&graph)?,
            update: update.transpose()?,
            rows,
            state: ResidentState::new(slots)?,
            graph,
            activations: Tensor::f32(dims.to_vec(), hashed(dims.iter().product()))?,
            labels: Tensor::i64([batch], labels.collect())?,
        })
    }

    /// Trains the next batches and returns the loss of each.
    pub(super) fn losses(&mut self, batches: usize) -> Result<Vec<f64>> {
        (0..batches).map(|_| self.batch()).collect()
    }

    /// Trains the next batches and returns the milliseconds of each.
    pub(super) fn times(&mut self, batches: usize) -> Result<Vec<f64>> {
        let timed = |_| {
            let started = Instant::now();
            self.batch()?;
            Ok(started.elapsed().as_secs_f64() * 1000.0)
        };
        (0..batches).map(timed).collect()
    }

    /// Trains all micro-batches of the batch and returns the mean loss.
    fn batch(&mut self) -> Result<f64> {
        let rate = Tensor::f32([], vec![LEARNING_RATE])?;
        let rate = (self.graph.scalars.learning_rate.as_str(), &rate);
        let batch = self.labels.rows()?;
        let mut sum = 0.0;
        for start in (0..batch).step_by(self.rows) {
            let activations = part(&self.activations, start, self.rows)?;
            let labels = part(&self.labels, start, self.rows)?;
            let mut inputs = vec![
                (self.graph.input.as_str(), &*activations),
                (self.graph.targets.as_str(), &*labels),
            ];
            inputs.extend(self.update.is_none().then_some(rate));
            let given = self
                .step
                .step(&mut self.state, &inputs, &[&self.graph.loss], &Interrupt::new())?;
            let loss = given
                .first()
                .and_then(Tensor::as_f32)
                .and_then(|loss| loss.first());
            sum += f64::from(*loss.context("the step gave no loss")?) * self.rows as f64;
        }
        if let Some(update) = &mut self.update {
            update.step(&mut self.state, &[rate], &[], &Interrupt::new())?;
        }
        Ok(sum / batch as f64)
    }
}

fn session(graph: &TrainingGraph) -> Result<Session> {
    let options = SessionOptions {
        threads: THREADS,
        fused_transposes: false,
        ..SessionOptions::default()
    };
    let mut session = Session::open(&graph.model.to_bytes()?, &options)?;
    session.write_in_place(graph.in_place.iter().cloned());
    Ok(session)
}

/// Returns `rows` rows from the batch, beginning with row `start`.
fn part(batch: &Tensor, start: usize, rows: usize) -> Result<Cow<'_, Tensor>> {
    Ok(match batch.rows()? == rows {
        true => Cow::Borrowed(batch),
        false => Cow::Owned(batch.slice_rows(start, start + rows)?),
    })
}

/// Numbers from -1 to 1, computed from their index like `hashed` in `peers/training_step.py`.
fn hashed(count: usize) -> Vec<f32> {
    let number = |index: u32| {
        let round = |bits: u32, factor: u32| (bits ^ (bits >> 15)).wrapping_mul(factor);
        let bits = round(round(index, 0x9e37_79b1), 0x85eb_ca6b);
        (bits >> 8) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    (0..count).map(|index| number(index as u32)).collect()
}
