//! From gradients to the next state.

use crate::emitter::{Emitter, Float};
use crate::optimizer::{Update, Updater};
use crate::settings::StepSettings;
use crate::state::{SlotKind, StateBuilder};
use crate::tape::Tape;
use crate::training_graph::Parameter;
use frostline_tensor::Data;

const LEARNING_RATE: &str = "learning_rate";
const AVERAGE_DECAY: &str = "average_decay";

/// Added to the norm of gradients before it divides, as PyTorch does.
const CLIP_EPSILON: f64 = 1e-6;

/// The inputs that take an update's scalars: those of a step that updates, else of [`TrainingGraph::update`](crate::TrainingGraph::update).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalars {
    /// Takes the learning rate.
    pub learning_rate: String,
    /// Takes what the [average](StepSettings::averages) keeps of itself at the step, 0 to 1.
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

/// Which of its graphs a suffix is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Takes a batch, and updates by it; where several make an update, it adds to them.
    Step,
    /// Takes no batch, and updates by those that were added up.
    Update,
}

/// Emits what becomes of every slot.
pub(crate) struct Next<'a> {
    pub(crate) tape: &'a mut Tape,
    pub(crate) state: &'a mut StateBuilder,
    pub(crate) parameters: &'a [Parameter<'a>],
    pub(crate) settings: &'a StepSettings,
    pub(crate) part: Part,
}

/// A parameter that is updated.
struct Due<'a> {
    parameter: &'a Parameter<'a>,
    gradient: Option<&'a str>,
    /// The place among all nodes of the one that makes the gradient.
    made: Option<usize>,
    /// The tensors whose making still reads the parameter once the gradient is there.
    after: Vec<String>,
}

impl Next<'_> {
    /// What becomes of them after a batch; where several make an update, it counts `count`, and gradients are sums over its samples.
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

    /// The weights after an update by `gradients`, and their averages. ONNX Runtime begins with what is written last, so the gradient that
    /// is there first comes last: it dies, with what it is made of, before the next is made.
    fn weights(&mut self, gradients: &[Option<String>], loss: &str) {
        let mut due = self.due(gradients, loss);
        due.sort_by_key(|due| std::cmp::Reverse(due.made));
        let (emit, settings) = (&mut self.tape.emit, self.settings);
        let mut updater = Updater::new(settings.optimizer, LEARNING_RATE);
        for Due {
            parameter,
            gradient,
            after,
            ..
        } in due
        {
            let next = gradient.map(|gradient| {
                let update = Update {
                    name: parameter.name,
                    weight: &parameter.slot,
                    gradient,
                    dims: &parameter.slot_dims,
                    factor: settings.rates.get(parameter.name).copied().unwrap_or(1.0),
                    joined: settings.joined.get(parameter.name).copied().unwrap_or(0),
                    after: &after,
                };
                updater.apply(emit, self.state, &update)
            });
            let next = next.unwrap_or_else(|| emit.node("Identity", &[&parameter.slot], vec![]));
            self.state.next(emit, parameter.name, SlotKind::Weight, &next);
            if settings.averages {
                average(emit, self.state, parameter, &next);
            }
            // Zeros made of the mean are written over the sum, as it has been read by then.
            if let (Part::Update, Some(gradient)) = (self.part, gradient) {
                let zeros = emit.sub(gradient, gradient);
                self.state.next(emit, parameter.name, SlotKind::Gathered, &zeros);
            }
        }
    }

    /// Every parameter with its gradient, when that is made, and what reads the parameter later.
    fn due<'b>(&self, gradients: &'b [Option<String>], loss: &'b str) -> Vec<Due<'b>>
    where
        Self: 'b,
    {
        let readers = self.tape.emit.readers();
        let statistics = self.tape.statistics.iter().map(|(_, next)| next.as_str());
        let ends = gradients.iter().flatten().map(String::as_str).chain([loss]);
        let live = readers.needed_for(ends.chain(statistics));
        // An update by itself has no batch that could read a weight.
        let alone = self.part == Part::Update || self.settings.accumulates;
        let due = |(parameter, gradient): (&'b Parameter<'b>, &'b Option<String>)| {
            let late = |gradient: &String| readers.late(&parameter.slot, gradient, &live);
            Due {
                parameter,
                gradient: gradient.as_deref(),
                made: gradient.as_deref().and_then(|gradient| readers.origin(gradient)),
                after: gradient.as_ref().filter(|_| !alone).map(late).unwrap_or_default(),
            }
        };
        self.parameters.iter().zip(gradients).map(due).collect()
    }

    /// What the samples of an update count: with the batch, or, for the update, without.
    fn total(&mut self, count: &str) -> String {
        let emit = &mut self.tape.emit;
        let zero = match emit.float {
            Float::F32 => Data::F32(vec![0.0]),
            Float::F64 => Data::F64(vec![0.0]),
        };
        let before = self.state.scalar("", SlotKind::Count, zero);
        let next = match self.part {
            Part::Step => emit.add(&before, count),
            Part::Update => emit.sub(&before, &before),
        };
        self.state.next(emit, "", SlotKind::Count, &next);
        before
    }

    /// The sum of an update's gradients with the batch's, or, for the update, their mean over a count of `total`.
    fn gathered(&mut self, parameter: &Parameter<'_>, gradient: &str, total: &str) -> String {
        let emit = &mut self.tape.emit;
        let before = self.state.zeros_like(parameter.name, SlotKind::Gathered);
        match self.part {
            Part::Step => {
                let sum = emit.add(&before, gradient);
                self.state.next(emit, parameter.name, SlotKind::Gathered, &sum);
                sum
            }
            Part::Update => emit.div(&before, total),
        }
    }
}

/// The gradient of a parameter, as its slot lies.
fn gradient(tape: &mut Tape, parameter: &Parameter<'_>) -> Option<String> {
    let gradient = tape.gradient(&parameter.value)?;
    let tensor = tape.tensor(&gradient, parameter.form);
    Some(tape.emit.reshape(&tensor, &parameter.slot_dims))
}

/// Multiplies all gradients by `most` over their norm where that is less than 1 (`torch.nn.utils.clip_grad_norm_`).
fn clip<'a>(emit: &mut Emitter, gradients: impl Iterator<Item = &'a mut String>, most: f64) {
    let gradients: Vec<&mut String> = gradients.collect();
    let squares: Vec<String> = gradients
        .iter()
        .map(|gradient| emit.sum_of_squares(gradient))
        .collect();
    let squares: Vec<&str> = squares.iter().map(String::as_str).collect();
    let total = emit.node("Sum", &squares, vec![]);
    let norm = emit.node("Sqrt", &[&total], vec![]);
    let (most, epsilon, one) = (emit.scalar(most), emit.scalar(CLIP_EPSILON), emit.scalar(1.0));
    let norm = emit.add(&norm, &epsilon);
    let part = emit.div(&most, &norm);
    let part = emit.node("Min", &[&part, &one], vec![]);
    for gradient in gradients {
        *gradient = emit.mul(gradient, &part);
    }
}

/// `decay·average + (1 - decay)·weight`.
fn average(emit: &mut Emitter, state: &mut StateBuilder, parameter: &Parameter<'_>, weight: &str) {
    let before = state.average_of(parameter.name);
    let away = emit.sub(&before, weight);
    let kept = emit.mul(&away, AVERAGE_DECAY);
    let next = emit.add(weight, &kept);
    state.next(emit, parameter.name, SlotKind::Average, &next);
}
