//! A training step's session.

use crate::TrainerError;
use crate::recipe::StepTerms;
use frostline_engine::{EngineError, Interrupt, ResidentSlot, Session, SessionOptions};
use frostline_graph::Model;
use frostline_tensor::Tensor;
use frostline_training::{Scalars, StateSlot, StepSettings, TrainingError, TrainingGraph};

/// The step for one batch size.
pub(super) struct Step {
    pub(super) batch: usize,
    /// Whether it ends in an update.
    pub(super) updates: bool,
    pub(super) session: Session,
    pub(super) input: String,
    pub(super) targets: String,
    pub(super) scalars: Scalars,
    pub(super) loss: String,
}

impl Step {
    pub(super) fn open(
        batch: usize,
        updates: bool,
        graph: TrainingGraph,
        options: &SessionOptions,
        interrupt: &Interrupt,
    ) -> Result<Self, TrainerError> {
        let session = open(&graph, options, interrupt)?;
        let TrainingGraph {
            input,
            targets,
            scalars,
            loss,
            ..
        } = graph;
        Ok(Self {
            batch,
            updates,
            session,
            input,
            targets,
            scalars,
            loss,
        })
    }
}

/// What the step's scalars are, by the inputs that take them.
pub(super) fn scalars<'a>(
    names: &'a Scalars,
    terms: &StepTerms,
) -> Result<Vec<(&'a str, Tensor)>, TrainerError> {
    let given = [
        (Some(&names.learning_rate), terms.rate),
        (names.share.as_ref(), terms.share),
        (names.average_decay.as_ref(), terms.decay),
    ];
    let taken = given
        .into_iter()
        .filter_map(|(name, value)| Some((name?.as_str(), value)));
    taken
        .map(|(name, value)| Ok((name, Tensor::f32([], vec![value])?)))
        .collect()
}

pub(super) fn build(
    model: &Model,
    batch: usize,
    settings: &StepSettings,
    updates: bool,
    freeze: &str,
) -> Result<TrainingGraph, TrainerError> {
    let built = if updates {
        TrainingGraph::build(model, batch, settings)
    } else {
        TrainingGraph::gather(model, batch, settings)
    };
    built.map_err(|source| not_trained(freeze, source))
}

/// A session that leaves the transposes of `graph` as they are: each is of the smaller operand of a matrix product.
pub(super) fn open(
    graph: &TrainingGraph,
    options: &SessionOptions,
    interrupt: &Interrupt,
) -> Result<Session, TrainerError> {
    let options = SessionOptions {
        fused_transposes: false,
        ..options.clone()
    };
    Session::open_until(&graph.model.to_bytes()?, &options, interrupt).map_err(training)
}

/// The slots as they are before the first step.
pub(super) fn resident(slots: &[StateSlot]) -> impl Iterator<Item = ResidentSlot> {
    slots.iter().map(|slot| ResidentSlot {
        input: slot.input.clone(),
        output: slot.output.clone(),
        initial: slot.initial.clone(),
    })
}

pub(super) fn not_trained(freeze: &str, source: TrainingError) -> TrainerError {
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
