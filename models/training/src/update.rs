//! From gradients to the next state.

use crate::emitter::Emitter;
use crate::optimizer::{Update, Updater};
use crate::settings::StepSettings;
use crate::state::{SlotKind, StateBuilder};
use crate::tape::Tape;
use crate::training_graph::Parameter;

const LEARNING_RATE: &str = "learning_rate";
const SHARE: &str = "share";
const AVERAGE_DECAY: &str = "average_decay";

/// Added to the norm of gradients before it divides, as PyTorch does.
const CLIP_EPSILON: f64 = 1e-6;

/// The inputs of a step that take scalars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalars {
    /// Takes the learning rate.
    pub learning_rate: String,
    /// Takes the part of its update that the batch makes up, where [several](StepSettings::accumulates) do: its samples over all of theirs.
    pub share: Option<String>,
    /// Takes what the [average](StepSettings::averages) keeps of itself at the step, 0 to 1.
    pub average_decay: Option<String>,
}

impl Scalars {
    pub(crate) fn of(settings: &StepSettings) -> Self {
        Self {
            learning_rate: LEARNING_RATE.into(),
            share: settings.accumulates.then(|| SHARE.into()),
            average_decay: settings.averages.then(|| AVERAGE_DECAY.into()),
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let optional = self.share.iter().chain(&self.average_decay);
        std::iter::once(&self.learning_rate)
            .chain(optional)
            .map(String::as_str)
    }
}

/// Emits what becomes of every slot: with the update, or, of a batch that is not the last of its update, its gradient added to the others'.
pub(crate) fn emit(
    tape: &mut Tape,
    state: &mut StateBuilder,
    parameters: &[Parameter<'_>],
    settings: &StepSettings,
    updates: bool,
) {
    let mut gradients: Vec<Option<String>> = parameters
        .iter()
        .map(|parameter| gradient(tape, parameter))
        .collect();
    let emit = &mut tape.emit;
    if settings.accumulates {
        for (parameter, gradient) in parameters.iter().zip(&mut gradients) {
            if let Some(gradient) = gradient {
                *gradient = gathered(emit, state, parameter, gradient, updates);
            }
        }
    }
    if let Some(most) = settings.clip_norm {
        clip(emit, gradients.iter_mut().flatten(), most);
    }
    let mut updater = Updater::new(settings.optimizer, LEARNING_RATE);
    for (parameter, gradient) in parameters.iter().zip(&gradients) {
        let next = gradient.as_ref().map(|gradient| {
            let update = Update {
                name: parameter.name,
                weight: &parameter.slot,
                gradient,
                dims: &parameter.slot_dims,
                factor: settings.rates.get(parameter.name).copied().unwrap_or(1.0),
                joined: settings.joined.get(parameter.name).copied().unwrap_or(0),
            };
            updater.apply(emit, state, &update)
        });
        let next = next.unwrap_or_else(|| emit.node("Identity", &[&parameter.slot], vec![]));
        state.next(emit, parameter.name, SlotKind::Weight, &next);
        if settings.averages {
            average(emit, state, parameter, &next);
        }
    }
    for (name, next) in std::mem::take(&mut tape.statistics) {
        state.next(emit, &name, SlotKind::Statistic, &next);
    }
    if !updates {
        state.keep_all_but(emit, &[SlotKind::Gathered, SlotKind::Statistic]);
    }
}

/// The gradient of a parameter, as its slot lies.
fn gradient(tape: &mut Tape, parameter: &Parameter<'_>) -> Option<String> {
    let gradient = tape.gradient(&parameter.value)?;
    let tensor = tape.tensor(&gradient, parameter.form);
    Some(tape.emit.reshape(&tensor, &parameter.slot_dims))
}

/// The gradient with those before it, which are forgotten with the update.
fn gathered(
    emit: &mut Emitter,
    state: &mut StateBuilder,
    parameter: &Parameter<'_>,
    gradient: &str,
    updates: bool,
) -> String {
    let before = state.zeros_like(parameter.name, SlotKind::Gathered);
    let part = emit.mul(gradient, SHARE);
    let sum = emit.add(&before, &part);
    if updates {
        let zero = emit.scalar(0.0);
        let none = emit.expand(&zero, &parameter.slot_dims);
        state.next(emit, parameter.name, SlotKind::Gathered, &none);
    } else {
        state.next(emit, parameter.name, SlotKind::Gathered, &sum);
    }
    sum
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
