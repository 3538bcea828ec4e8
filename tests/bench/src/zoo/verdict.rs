//! Runs training steps to check if a part of a network is trainable.

use super::fill::normal;
use anyhow::{Context, Result, bail, ensure};
use frostline_engine::{Interrupt, ResidentSlot, ResidentState, Session, SessionOptions};
use frostline_graph::{Model, ModelLimits};
use frostline_tensor::{Tensor, one_line};
use frostline_training::{Optimizer, Trainability, TrainingGraph};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;

/// Trained parts of a network.
pub(super) const TRAINED: [&str; 3] = ["head", "last_block", "whole"];

/// Metadata entry with the names of the tensors that PyTorch trains.
const REQUIRES_GRAD: &str = "frostline.requires_grad";

const CLASSES: usize = 10;
const BATCH: usize = 2;
const STEPS: usize = 4;
/// Learning rates, tried until the loss decreases. The weights are random, without the statistics of
/// pretrained weights, so gradients may be very large or small.
const RATES: [f32; 4] = [1e-4, 1e-5, 1e-3, 1e-6];
/// With AdamW, the step size does not depend on the size of gradients.
const OPTIMIZER: Optimizer = Optimizer::AdamW {
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weight_decay: 0.0,
};
/// Maximum share of the compute before the last block, which begins at the last cut within this limit.
const BEFORE_LAST_BLOCK: f64 = 0.95;

/// Result of training a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// Loss is finite and decreases.
    Trains {
        /// Beginning of the part (a cut or `input`).
        from: String,
        losses: Vec<f32>,
        rate: f32,
    },
    /// Reason for the failure.
    Fails(String),
}

impl Verdict {
    /// Trains `part` of the network, if it could be read.
    pub(super) fn check(model: &Result<Model>, part: &str) -> Self {
        let trained = match model {
            Ok(model) => trained(model, part),
            Err(error) => return Self::Fails(one_line(error.as_ref())),
        };
        trained.unwrap_or_else(|error| Self::Fails(one_line(error.as_ref())))
    }

    pub(super) fn trains(&self) -> bool {
        matches!(self, Self::Trains { .. })
    }

    /// Text for the table.
    pub(super) fn short(&self) -> String {
        match self {
            Self::Trains { losses, .. } => {
                let loss = |loss: Option<&f32>| loss.copied().unwrap_or(f32::NAN);
                format!("{:.3} to {:.3}", loss(losses.first()), loss(losses.last()))
            }
            Self::Fails(_) => "no".to_owned(),
        }
    }

    /// Text for the report.
    pub(super) fn description(&self) -> String {
        match self {
            Self::Trains { .. } => "trains".to_owned(),
            Self::Fails(why) => why.clone(),
        }
    }

    pub(super) fn serialized(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    pub(super) fn deserialized(value: &Value) -> Result<Self> {
        Ok(Self::deserialize(value)?)
    }
}

fn trained(model: &Model, part: &str) -> Result<Verdict> {
    let from = beginning(&model.replace_head(CLASSES, 0)?, part)?;
    let freeze = from.as_deref().map_or_else(|| model.input_name(), Ok)?;
    let headed = model.with_own_weights(freeze)?.replace_head(CLASSES, 0)?;
    let trainability = Trainability::analyze(model)?;
    let begins = from
        .as_deref()
        .unwrap_or(&headed.network()?.input.name)
        .to_owned();
    if let Some(obstacle) = trainability.obstacle(&begins) {
        bail!("{obstacle}");
    }
    check_admission(&headed, from.as_deref())?;
    let suffix = match &from {
        Some(cut) => headed.slice(Some(cut), None)?,
        None => headed,
    };
    let mut step = Step::open(&suffix)?;
    let mut tried = Vec::new();
    for rate in RATES {
        let Trained { losses, changed } = step.train(rate)?;
        let falls = losses.last() < losses.first() && losses.iter().all(|loss| loss.is_finite());
        if falls {
            if let Some(expected) = model.metadata(REQUIRES_GRAD) {
                RequiresGrad::check(expected, &suffix, &changed)?;
            }
            let from = from.unwrap_or_else(|| "input".to_owned());
            return Ok(Verdict::Trains { from, losses, rate });
        }
        tried.push(format!("{losses:?} at {rate}"));
    }
    bail!("the loss does not fall: {}", tried.join(", "))
}

/// Returns the cut before the part, or `None` for the complete network.
fn beginning(headed: &Model, part: &str) -> Result<Option<String>> {
    let network = headed.network()?;
    let cuts = || network.cuts.iter().filter(|cut| cut.before_head);
    let found = match part {
        "head" => cuts().next_back(),
        "last_block" => {
            let head = cuts().count().saturating_sub(1);
            let before = |share| move |cut: &&frostline_graph::Cut| cut.compute_share <= share;
            let block = cuts().take(head).filter(before(BEFORE_LAST_BLOCK)).last();
            block.or_else(|| cuts().next())
        }
        _ => return Ok(None),
    };
    // Networks without a cut before the head can only be trained completely.
    ensure!(found.is_some(), "missing cut before the trained part");
    Ok(found.map(|cut| cut.name.clone()))
}

/// Rejects a part if hosts would refuse the frozen layers.
fn check_admission(headed: &Model, from: Option<&str>) -> Result<()> {
    let Some(from) = from else { return Ok(()) };
    let cut = headed.network()?.cut(from)?.clone();
    match headed.first_refused_cut(&[cut], &ModelLimits::default()) {
        Some(refused) => Err(refused.why).context("hosts refuse the layers before this part"),
        None => Ok(()),
    }
}

/// Names of the tensors that PyTorch trains and does not train, written by `models/zoo/classifiers.py`.
#[derive(Deserialize)]
struct RequiresGrad {
    trained: Vec<String>,
    fixed: Vec<String>,
}

impl RequiresGrad {
    /// Compares the changed weights with the ones that PyTorch trains. Exporters rename tensors that they
    /// fold or rearrange, and these are not compared. The head is new.
    fn check(expected: &str, suffix: &Model, changed: &HashSet<String>) -> Result<()> {
        let Self { trained, fixed } =
            serde_json::from_str(expected).context("invalid names in the metadata")?;
        let stored = suffix.initializers();
        let head = suffix.head_weights()?;
        let compared = |name: &&String| stored.contains_key(name.as_str()) && !head.contains(name);
        let untrained: Vec<_> = trained
            .iter()
            .filter(compared)
            .filter(|name| !changed.contains(*name))
            .collect();
        let wrong: Vec<_> = fixed
            .iter()
            .filter(compared)
            .filter(|name| changed.contains(*name))
            .collect();
        ensure!(
            untrained.is_empty(),
            "PyTorch trains {untrained:?}, but they did not change"
        );
        ensure!(
            wrong.is_empty(),
            "PyTorch does not train {wrong:?}, but they changed"
        );
        Ok(())
    }
}

/// Result of a few steps.
struct Trained {
    losses: Vec<f32>,
    /// Names of the weights that changed.
    changed: HashSet<String>,
}

/// A training step with a fixed batch.
struct Step {
    session: Session,
    graph: TrainingGraph,
    input: Tensor,
    labels: Tensor,
}

impl Step {
    fn open(suffix: &Model) -> Result<Self> {
        let graph = TrainingGraph::build(suffix, BATCH, OPTIMIZER)?;
        let session = Session::open(&graph.model.to_bytes()?, &SessionOptions::default())?;
        let row = suffix.network()?.input.shape.dims().to_vec();
        let dims = [&[BATCH], row.as_slice()].concat();
        let labels = (0..BATCH as i64).map(|row| row * 3 % CLASSES as i64).collect();
        Ok(Self {
            session,
            graph,
            input: Tensor::f32(dims.clone(), normal(dims.iter().product()))?,
            labels: Tensor::i64([BATCH], labels)?,
        })
    }

    /// Takes [`STEPS`] steps with rate `rate` from the initial weights.
    fn train(&mut self, rate: f32) -> Result<Trained> {
        let slots = self.graph.state.iter().map(|slot| ResidentSlot {
            input: slot.input.clone(),
            output: slot.output.clone(),
            initial: slot.initial.clone(),
        });
        let mut state = ResidentState::new(slots)?;
        let rate = Tensor::f32([], vec![rate])?;
        let mut losses = Vec::new();
        for _ in 0..STEPS {
            let inputs = [
                (self.graph.input.as_str(), &self.input),
                (self.graph.targets.as_str(), &self.labels),
                (self.graph.scalars.learning_rate.as_str(), &rate),
            ];
            let given = self
                .session
                .step(&mut state, &inputs, &[&self.graph.loss], &Interrupt::new())?;
            let loss = given
                .first()
                .and_then(Tensor::as_f32)
                .and_then(|loss| loss.first());
            losses.push(*loss.context("the step gave no loss")?);
        }
        let mut changed = HashSet::new();
        for slot in &self.graph.state {
            if let Some(name) = slot.parameter.clone()
                && state.tensor(&slot.input)? != slot.initial
            {
                changed.insert(name);
            }
        }
        Ok(Trained { losses, changed })
    }
}
