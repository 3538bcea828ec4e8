//! Emits the next state from the gradients.

use crate::emitter::Emitter;
use crate::optimizer::{Update, Updater};
use crate::parameter::Parameter;
use crate::settings::StepSettings;
use crate::state::{SlotKind, StateBuilder};
use crate::tape::Tape;
use frostline_tensor::Data;

const LEARNING_RATE: &str = "learning_rate";
const AVERAGE_DECAY: &str = "average_decay";

/// Added to the norm of gradients before the division, like in PyTorch.
const CLIP_EPSILON: f64 = 1e-6;

/// Scalar inputs for updates, either in the step or in
/// [`TrainingGraph::update`](crate::TrainingGraph::update).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalars {
    /// Input for the learning rate.
    pub learning_rate: String,
    /// Input for the decay of the [average](StepSettings::averages) in this step, from 0 to 1.
    pub average_decay: Option<String>,
}

impl Scalars {
    pub(crate) fn from_settings(settings: &StepSettings) -> Self {
        Self {
            learning_rate: LEARNING_RATE.into(),
            average_decay: settings.averages.then(|| AVERAGE_DECAY.into()),
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = std::iter::once(&self.learning_rate).chain(&self.average_decay);
        names.map(String::as_str)
    }
}

/// Kind of graph to write for a suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GraphKind {
    /// Reads a batch and updates, or only accumulates if several batches make an update.
    Step,
    /// Updates with the accumulated gradients and does not read a batch.
    Update,
}

/// Emits the next values of all slots.
pub(crate) struct StateUpdate<'a> {
    pub(crate) tape: &'a mut Tape,
    pub(crate) state: &'a mut StateBuilder,
    pub(crate) parameters: &'a [Parameter<'a>],
    pub(crate) settings: &'a StepSettings,
    pub(crate) part: GraphKind,
}

impl StateUpdate<'_> {
    /// Emits the next values after a batch. If several batches make an update, `count` is the total weight of
    /// the batch, and gradients are sums over the samples.
    pub(crate) fn emit(mut self, count: &str, loss: &str) {
        let mut gradients: Vec<Option<String>> = self
            .parameters
            .iter()
            .map(|parameter| gradient(self.tape, parameter))
            .collect();
        if self.settings.accumulates {
            let total = self.total(count);
            for (parameter, gradient) in self.parameters.iter().zip(&mut gradients) {
                if let Some(gradient) = gradient {
                    *gradient = self.gathered(parameter, gradient, &total);
                }
            }
        }
        if let Some(most) = self.settings.clip_norm {
            clip(&mut self.tape.emit, gradients.iter_mut().flatten(), most);
        }
        self.weights(&gradients, loss);
        for (name, next) in std::mem::take(&mut self.tape.statistics) {
            self.state
                .next(&mut self.tape.emit, &name, SlotKind::Statistic, &next);
        }
    }

    /// Emits the next weights and averages. ONNX Runtime starts with the nodes written last, so updates are
    /// written in reverse order of the gradients. This frees the memory of a gradient before the next
    /// gradient is computed.
    fn weights(&mut self, gradients: &[Option<String>], loss: &str) {
        let mut due = self.due(gradients, loss);
        due.sort_by_key(|(_, _, made)| std::cmp::Reverse(*made));
        let emit = &mut self.tape.emit;
        let settings = self.settings;
        let mut updater = Updater::new(settings, LEARNING_RATE);
        for (parameter, update, _) in due {
            let next = update
                .as_ref()
                .map(|update| updater.apply(emit, self.state, update));
            let next = next.unwrap_or_else(|| emit.node("Identity", &[&parameter.slot], vec![]));
            self.state.next(emit, parameter.name, SlotKind::Weight, &next);
            if settings.averages {
                average(emit, self.state, parameter, &next);
            }
            // These zeros are written over the sum, because the sum has been read by then.
            if let (GraphKind::Update, Some(Update { gradient, .. })) = (self.part, update) {
                let zeros = emit.sub(gradient, gradient);
                self.state
                    .next(emit, parameter.name, SlotKind::GradientSum, &zeros);
            }
        }
    }

    /// Returns all parameters with the update, if they have a gradient, and the index of the node that computes the
    /// gradient.
    fn due<'b>(
        &self,
        gradients: &'b [Option<String>],
        loss: &'b str,
    ) -> Vec<(&'b Parameter<'b>, Option<Update<'b>>, Option<usize>)>
    where
        Self: 'b,
    {
        let readers = self.tape.emit.readers();
        let statistics = self.tape.statistics.iter().map(|(_, next)| next.as_str());
        let ends = gradients.iter().flatten().map(String::as_str).chain([loss]);
        let live = readers.needed_for(ends.chain(statistics));
        // Without a batch, no node reads a weight late.
        let alone = self.part == GraphKind::Update || self.settings.accumulates;
        let mut due = Vec::with_capacity(gradients.len());
        for (parameter, gradient) in self.parameters.iter().zip(gradients) {
            let update = gradient.as_deref().map(|gradient| Update {
                parameter,
                gradient,
                after: match alone {
                    true => Vec::new(),
                    false => readers.late(&parameter.slot, gradient, &live),
                },
            });
            let made = gradient.as_deref().and_then(|gradient| readers.origin(gradient));
            due.push((parameter, update, made));
        }
        due
    }

    /// Emits the next total weight and returns the current one. A step adds the weight of the batch, an
    /// update resets it.
    fn total(&mut self, count: &str) -> String {
        let emit = &mut self.tape.emit;
        let zero = Data::zeros(emit.float.dtype(), 1);
        let before = self.state.scalar("", SlotKind::Count, zero);
        let next = match self.part {
            GraphKind::Step => emit.add(&before, count),
            GraphKind::Update => emit.sub(&before, &before),
        };
        self.state.next(emit, "", SlotKind::Count, &next);
        before
    }

    /// Returns the sum of the accumulated gradients and the gradient of the batch in a step, or the mean over
    /// the weight `total` in an update.
    fn gathered(&mut self, parameter: &Parameter<'_>, gradient: &str, total: &str) -> String {
        let emit = &mut self.tape.emit;
        let before = self.state.zeros_like(parameter.name, SlotKind::GradientSum);
        match self.part {
            GraphKind::Step => {
                let sum = emit.add(&before, gradient);
                self.state.next(emit, parameter.name, SlotKind::GradientSum, &sum);
                sum
            }
            GraphKind::Update => emit.div(&before, total),
        }
    }
}

/// Returns the gradient of a parameter in the form of the slot, or `None` if the loss does not depend on the
/// parameter.
fn gradient(tape: &mut Tape, parameter: &Parameter<'_>) -> Option<String> {
    let gradient = tape.gradient(&parameter.value)?;
    let tensor = tape.tensor(&gradient, parameter.form);
    Some(tape.emit.reshape(&tensor, &parameter.slot_dims))
}

/// Scales all gradients down to the norm `most` if the norm of all gradients together is larger
/// (`torch.nn.utils.clip_grad_norm_`).
fn clip<'a>(emit: &mut Emitter, gradients: impl Iterator<Item = &'a mut String>, most: f64) {
    let gradients: Vec<&mut String> = gradients.collect();
    let squares: Vec<String> = gradients
        .iter()
        .map(|gradient| emit.sum_of_squares(gradient))
        .collect();
    let squares: Vec<&str> = squares.iter().map(String::as_str).collect();
    let total = emit.node("Sum", &squares, vec![]);
    let norm = emit.node("Sqrt", &[&total], vec![]);
    let most = emit.scalar(most);
    let epsilon = emit.scalar(CLIP_EPSILON);
    let one = emit.scalar(1.0);
    let norm = emit.add(&norm, &epsilon);
    let part = emit.div(&most, &norm);
    let part = emit.node("Min", &[&part, &one], vec![]);
    for gradient in gradients {
        *gradient = emit.mul(gradient, &part);
    }
}

/// Emits `decay·average + (1 - decay)·weight`.
fn average(emit: &mut Emitter, state: &mut StateBuilder, parameter: &Parameter<'_>, weight: &str) {
    let before = state.average_of(parameter.name);
    let away = emit.sub(&before, weight);
    let kept = emit.mul(&away, AVERAGE_DECAY);
    let next = emit.add(weight, &kept);
    state.next(emit, parameter.name, SlotKind::Average, &next);
}
