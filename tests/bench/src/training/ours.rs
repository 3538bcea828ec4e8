//! Frostline's step, with its weights in the engine.

use super::{CLASSES, LEARNING_RATE, OPTIMIZER, THREADS};
use anyhow::{Context, Result};
use frostline_engine::{ResidentSlot, ResidentState, Session, SessionOptions};
use frostline_graph::Model;
use frostline_tensor::Tensor;
use frostline_training::{StepSettings, TrainingGraph, faster_by_winograd};
use std::time::Instant;

pub(super) struct Ours {
    session: Session,
    state: ResidentState,
    graph: TrainingGraph,
    activations: Tensor,
    labels: Tensor,
}

impl Ours {
    /// The step of `suffix` for a batch of these dimensions, as a job takes it.
    pub(super) fn open(suffix: &Model, dims: &[usize]) -> Result<Self> {
        let batch = *dims.first().context("a batch without dimensions")?;
        let settings = StepSettings {
            winograd: faster_by_winograd(suffix, batch)?,
            ..OPTIMIZER.into()
        };
        Self::with_graph(TrainingGraph::build(suffix, batch, settings)?, dims)
    }

    fn with_graph(mut graph: TrainingGraph, dims: &[usize]) -> Result<Self> {
        let options = SessionOptions {
            threads: THREADS,
            fused_transposes: false,
            ..SessionOptions::default()
        };
        let mut session = Session::open(&graph.model.to_bytes()?, &options)?;
        session.write_in_place(std::mem::take(&mut graph.in_place));
        let slots = std::mem::take(&mut graph.state).into_iter();
        let slots = slots.map(|slot| ResidentSlot {
            input: slot.input,
            output: slot.output,
            initial: slot.initial,
        });
        let batch = *dims.first().context("a batch without dimensions")?;
        let labels = (0..batch as i64).map(|row| row * 31 % CLASSES as i64);
        Ok(Self {
            session,
            state: ResidentState::new(slots)?,
            graph,
            activations: Tensor::f32(dims.to_vec(), hashed(dims.iter().product()))?,
            labels: Tensor::i64([batch], labels.collect())?,
        })
    }

    /// The loss of each of the next steps.
    pub(super) fn losses(&mut self, steps: usize) -> Result<Vec<f64>> {
        (0..steps).map(|_| self.step()).collect()
    }

    /// The milliseconds of each of the next steps.
    pub(super) fn times(&mut self, steps: usize) -> Result<Vec<f64>> {
        let timed = |_| {
            let started = Instant::now();
            self.step()?;
            Ok(started.elapsed().as_secs_f64() * 1000.0)
        };
        (0..steps).map(timed).collect()
    }

    fn step(&mut self) -> Result<f64> {
        let rate = Tensor::f32([], vec![LEARNING_RATE])?;
        let inputs = [
            (self.graph.input.as_str(), &self.activations),
            (self.graph.targets.as_str(), &self.labels),
            (self.graph.scalars.learning_rate.as_str(), &rate),
        ];
        let given = self.session.step(&mut self.state, &inputs, &[&self.graph.loss])?;
        let loss = given
            .first()
            .and_then(Tensor::as_f32)
            .and_then(|loss| loss.first());
        Ok(f64::from(*loss.context("the step gave no loss")?))
    }
}

/// Numbers of -1 to 1 by their index, as `hashed` of `peers/training_step.py` makes them.
fn hashed(count: usize) -> Vec<f32> {
    let number = |index: u32| {
        let round = |bits: u32, factor: u32| (bits ^ (bits >> 15)).wrapping_mul(factor);
        let bits = round(round(index, 0x9e37_79b1), 0x85eb_ca6b);
        (bits >> 8) as f32 / (1_u32 << 23) as f32 - 1.0
    };
    (0..count).map(|index| number(index as u32)).collect()
}
