//! Settings and session of a training step.

use crate::error::ComputeError;
use crate::mix::Mix;
use frostline_engine::{Interrupt, ResidentSlot, ResidentState, Session, SessionOptions};
use frostline_tensor::Tensor;
use frostline_training::{DropoutMask, Scalars, StateSlot, TrainingGraph};
use std::borrow::Cow;

/// Settings of one training step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepTerms {
    /// Number of the step within the job, which determines random choices.
    pub step: u64,
    /// Largest learning rate of any weight.
    pub rate: f32,
    /// True if the step updates weights. Otherwise, the gradient is accumulated.
    pub updates: bool,
    /// Decay of the moving average of weights.
    pub decay: f32,
    /// Mixing of rows, if any.
    pub mix: Option<Mix>,
}

impl StepTerms {
    /// Returns the terms for a step that is only timed.
    pub fn measured() -> Self {
        Self {
            step: 0,
            rate: 1e-3,
            updates: true,
            decay: 0.0,
            mix: None,
        }
    }
}

/// A graph of the suffix in a dedicated session. This is either a training step for a fixed number of rows or
/// the weight update.
pub(crate) struct StepSession {
    pub(crate) rows: usize,
    session: Session,
    input: String,
    targets: String,
    masks: Vec<DropoutMask>,
    scalars: Scalars,
    loss: String,
}

/// Input rows of a training step.
#[derive(Clone, Copy)]
pub(crate) struct StepRows<'a> {
    pub(crate) activations: &'a Tensor,
    pub(crate) targets: &'a Tensor,
    /// Offset of the first row within the batch.
    pub(crate) offset: usize,
}

impl StepSession {
    pub(crate) fn open(
        rows: usize,
        graph: TrainingGraph,
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, ComputeError> {
        Ok(Self {
            rows,
            session: open(&graph, options, interrupt)?,
            input: graph.input,
            targets: graph.targets,
            masks: graph.masks,
            scalars: graph.scalars,
            loss: graph.loss,
        })
    }

    /// Runs the graph on `state`, with `rows` for a training step. Uses the rates in `terms` if the graph
    /// updates weights. Returns the mean loss of the rows.
    pub(crate) fn run(
        &mut self,
        state: &mut ResidentState,
        rows: Option<StepRows<'_>>,
        terms: &StepTerms,
        interrupt: &Interrupt,
    ) -> Result<Option<f32>, ComputeError> {
        let mut inputs = Vec::new();
        if let Some(rows) = rows {
            inputs.push((self.input.as_str(), Cow::Borrowed(rows.activations)));
            inputs.push((self.targets.as_str(), Cow::Borrowed(rows.targets)));
            for mask in &self.masks {
                let drawn = mask.draw(terms.step, rows.offset)?;
                inputs.push((mask.input.as_str(), Cow::Owned(drawn)));
            }
        }
        let scalars = [
            (Some(&self.scalars.learning_rate), terms.rate),
            (self.scalars.average_decay.as_ref(), terms.decay),
        ];
        for (name, value) in scalars {
            let taken = name.filter(|name| self.session.inputs().iter().any(|slot| slot.name == **name));
            if let Some(name) = taken {
                inputs.push((name, Cow::Owned(Tensor::f32([], vec![value])?)));
            }
        }
        let inputs: Vec<(&str, &Tensor)> = inputs.iter().map(|(name, tensor)| (*name, &**tensor)).collect();
        let wanted = rows.map(|_| self.loss.as_str());
        let outputs = self
            .session
            .step(state, &inputs, wanted.as_slice(), interrupt)
            .map_err(ComputeError::training)?;
        let loss = outputs.first().and_then(Tensor::as_f32);
        Ok(loss.and_then(|loss| loss.first().copied()))
    }
}

/// Opens a session that updates weights in place. Transposes in `graph` are not fused: each already
/// transposes the smaller operand of a matrix product, and fusing is slower.
pub(crate) fn open(
    graph: &TrainingGraph,
    options: &SessionOptions,
    interrupt: &Interrupt,
) -> Result<Session, ComputeError> {
    let options = SessionOptions {
        fused_transposes: false,
        ..options.clone()
    };
    let session = Session::open_until(&graph.model.to_bytes()?, &options, interrupt);
    let mut session = session.map_err(ComputeError::training)?;
    session.write_in_place(graph.in_place.iter().cloned());
    Ok(session)
}

/// Returns the initial slots of a session. Tensors are moved to avoid a second copy of the weights.
pub(crate) fn resident(slots: &mut [StateSlot]) -> impl Iterator<Item = ResidentSlot> {
    slots.iter_mut().map(|slot| ResidentSlot {
        input: slot.input.clone(),
        output: slot.output.clone(),
        initial: slot.take_initial(),
    })
}
