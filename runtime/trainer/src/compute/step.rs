//! Session of a training step.

use crate::TrainerError;
use crate::recipe::StepTerms;
use frostline_engine::{EngineError, Interrupt, ResidentSlot, ResidentState, Session, SessionOptions};
use frostline_tensor::Tensor;
use frostline_training::{Mask, Scalars, StateSlot, TrainingError, TrainingGraph};
use std::borrow::Cow;

/// A graph of the suffix in a dedicated session. This is either a training step for a fixed number of rows or
/// the weight update.
pub(super) struct Step {
    pub(super) rows: usize,
    session: Session,
    input: String,
    targets: String,
    masks: Vec<Mask>,
    scalars: Scalars,
    loss: String,
}

/// Input rows of a training step.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) activations: &'a Tensor,
    pub(super) targets: &'a Tensor,
    /// Offset of the first row within the batch.
    pub(super) offset: usize,
}

impl Step {
    pub(super) fn open(
        rows: usize,
        graph: TrainingGraph,
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, TrainerError> {
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
    pub(super) fn run(
        &mut self,
        state: &mut ResidentState,
        rows: Option<Rows<'_>>,
        terms: &StepTerms,
        interrupt: &Interrupt,
    ) -> Result<Option<f32>, TrainerError> {
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
            .step_until(state, &inputs, wanted.as_slice(), interrupt)
            .map_err(training)?;
        let loss = outputs.first().and_then(Tensor::as_f32);
        Ok(loss.and_then(|loss| loss.first().copied()))
    }
}

/// Opens a session that updates weights in place. Transposes in `graph` are not fused: each already
/// transposes the smaller operand of a matrix product, and fusing is slower.
pub(super) fn open(
    graph: &TrainingGraph,
    options: &SessionOptions,
    interrupt: &Interrupt,
) -> Result<Session, TrainerError> {
    let options = SessionOptions {
        fused_transposes: false,
        ..options.clone()
    };
    let session = Session::open_until(&graph.model.to_bytes()?, &options, interrupt);
    let mut session = session.map_err(training)?;
    session.write_in_place(graph.in_place.iter().cloned());
    Ok(session)
}

/// Returns the initial slots of a session. Tensors are moved to avoid a second copy of the weights.
pub(super) fn resident(slots: &mut [StateSlot]) -> impl Iterator<Item = ResidentSlot> {
    slots.iter_mut().map(|slot| ResidentSlot {
        input: slot.input.clone(),
        output: slot.output.clone(),
        initial: slot.take_initial(),
    })
}

pub(crate) fn not_trained(freeze: &str, source: TrainingError) -> TrainerError {
    TrainerError::Training {
        freeze: freeze.to_owned(),
        source,
    }
}

pub(super) fn training(source: EngineError) -> TrainerError {
    TrainerError::Engine {
        doing: "training",
        source,
    }
}
