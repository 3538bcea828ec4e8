use crate::emitter::Emitter;
use crate::parameter::Parameter;
use crate::settings::{Optimizer, StepSettings};
use crate::state::{SlotKind, StateBuilder};
use frostline_graph::onnx::data_type;
use frostline_tensor::Data;
use std::collections::BTreeMap;

/// Parameter to update.
pub(crate) struct Update<'a> {
    pub(crate) parameter: &'a Parameter<'a>,
    /// Gradient in the slot's form.
    pub(crate) gradient: &'a str,
    /// Tensors that still read the weight after the gradient is computed. The new value is written after
    /// them.
    pub(crate) after: Vec<String>,
}

/// Emits the updates of a step and shares the common scalars.
pub(crate) struct Updater<'a> {
    settings: &'a StepSettings,
    /// Tensor with the learning rate, a scalar.
    rate: &'a str,
    /// Learning rates by the bits of the factor and by step counter.
    rates: BTreeMap<(u64, u32), RateScalars>,
    /// Bias corrections by step counter.
    corrections: BTreeMap<u32, Corrections>,
}

/// Scalars derived from a learning rate.
#[derive(Clone)]
struct RateScalars {
    /// Factor of the direction. For AdamW, this is `rate / (1 - beta1^step)`.
    size: String,
    /// Factor of the weight, `1 - rate·weight_decay`, if AdamW has weight decay.
    shrink: Option<String>,
    /// `sqrt(1 - beta2^step)` for AdamW.
    second: Option<String>,
}

/// Bias corrections of AdamW for the current step.
struct Corrections {
    /// `1 - beta1^step`, an `f64` scalar.
    first: String,
    /// `sqrt(1 - beta2^step)`.
    second: String,
}

impl<'a> Updater<'a> {
    pub(crate) fn new(settings: &'a StepSettings, rate: &'a str) -> Self {
        Self {
            settings,
            rate,
            rates: BTreeMap::new(),
            corrections: BTreeMap::new(),
        }
    }

    /// Emits the update of a parameter and returns the tensor with the new value.
    pub(crate) fn apply(
        &mut self,
        emit: &mut Emitter,
        state: &mut StateBuilder,
        update: &Update<'_>,
    ) -> String {
        let rate = self.rate(emit, state, update.parameter.name);
        let direction = match self.settings.optimizer {
            Optimizer::Sgd {
                momentum,
                nesterov,
                weight_decay,
            } => descent(emit, state, update, [momentum, weight_decay], nesterov),
            Optimizer::AdamW {
                beta1,
                beta2,
                epsilon,
                ..
            } => {
                let correction = rate.second.as_deref().unwrap_or_default();
                adam(emit, state, update, [beta1, beta2, epsilon], correction)
            }
        };
        let size = emit.delayed(&rate.size, &update.after);
        let step = emit.mul(&direction, &size);
        let weight = &update.parameter.slot;
        match &rate.shrink {
            Some(shrink) => {
                let shrunk = emit.mul(weight, shrink);
                emit.sub(&shrunk, &step)
            }
            None => emit.sub(weight, &step),
        }
    }

    fn rate(&mut self, emit: &mut Emitter, state: &mut StateBuilder, name: &str) -> RateScalars {
        let factor = self.settings.rate_factors.get(name).copied().unwrap_or(1.0);
        let counter = self.settings.step_counters.get(name).copied().unwrap_or(0);
        let of = (factor.to_bits(), counter);
        if let Some(known) = self.rates.get(&of) {
            return known.clone();
        }
        let rate = emit.scale(self.rate, factor);
        let made = match self.settings.optimizer {
            Optimizer::Sgd { .. } => RateScalars {
                size: rate,
                shrink: None,
                second: None,
            },
            Optimizer::AdamW {
                beta1,
                beta2,
                weight_decay,
                ..
            } => {
                let corrections = self.corrections.entry(counter);
                let corrections =
                    corrections.or_insert_with(|| Corrections::new(emit, state, counter, [beta1, beta2]));
                RateScalars::corrected(emit, &rate, weight_decay, corrections)
            }
        };
        self.rates.insert(of, made.clone());
        made
    }
}

/// Returns the direction of an SGD step. With a momentum, the velocity is also the next state.
fn descent(
    emit: &mut Emitter,
    state: &mut StateBuilder,
    update: &Update<'_>,
    [momentum, weight_decay]: [f64; 2],
    nesterov: bool,
) -> String {
    let Parameter {
        name, slot: weight, ..
    } = update.parameter;
    if momentum == 0.0 {
        return add_scaled(emit, update, weight, weight_decay);
    }
    let mut before = state.zeros_like(name, SlotKind::Momentum);
    if weight_decay != 0.0 {
        let decay = emit.scale(weight, weight_decay / momentum);
        before = emit.add(&before, &decay);
    }
    let velocity = add_scaled(emit, update, &before, momentum);
    state.next(emit, name, SlotKind::Momentum, &velocity);
    if !nesterov {
        return velocity;
    }
    let direction = add_scaled(emit, update, weight, weight_decay);
    let ahead = emit.scale(&velocity, momentum);
    emit.add(&direction, &ahead)
}

/// Adds `factor` times `addend` to the gradient, in a single pass if the gradient is a matrix product.
fn add_scaled(emit: &mut Emitter, update: &Update<'_>, addend: &str, factor: f64) -> String {
    if factor == 0.0 {
        return update.gradient.to_owned();
    }
    emit.product_plus(update.gradient, addend, factor, &update.parameter.slot_dims)
        .unwrap_or_else(|| {
            let scaled = emit.scale(addend, factor);
            emit.add(&scaled, update.gradient)
        })
}

impl Corrections {
    fn new(emit: &mut Emitter, state: &mut StateBuilder, joined: u32, betas: [f64; 2]) -> Self {
        let step = count_step(emit, state, joined);
        let [first, second] = betas.map(|beta| bias(emit, beta, &step));
        let root = emit.node("Sqrt", &[&second], vec![]);
        Self {
            first,
            second: emit.cast_float(&root),
        }
    }
}

/// Increments a step counter and returns it as an `f64` scalar.
fn count_step(emit: &mut Emitter, state: &mut StateBuilder, joined: u32) -> String {
    let name = match joined {
        0 => String::new(),
        joined => format!("{joined}/"),
    };
    let before = state.scalar(&name, SlotKind::Step, Data::I64(vec![0]));
    let one = emit.integer(1);
    let step = emit.add(&before, &one);
    state.next(emit, &name, SlotKind::Step, &step);
    emit.cast(&step, data_type::DOUBLE)
}

/// Emits `1 - beta^step` in `f64`, because `f32` loses four digits in the first steps if beta is close to 1.
fn bias(emit: &mut Emitter, beta: f64, step: &str) -> String {
    let one = emit.double(1.0);
    let beta = emit.double(beta);
    let power = emit.node("Pow", &[&beta, step], vec![]);
    emit.sub(&one, &power)
}

impl RateScalars {
    /// Returns the scalars of AdamW.
    fn corrected(emit: &mut Emitter, rate: &str, weight_decay: f64, corrections: &Corrections) -> Self {
        let shrink = (weight_decay != 0.0).then(|| {
            let decay = emit.scale(rate, weight_decay);
            let one = emit.scalar(1.0);
            emit.sub(&one, &decay)
        });
        let wide = emit.cast(rate, data_type::DOUBLE);
        let size = emit.div(&wide, &corrections.first);
        Self {
            shrink,
            size: emit.cast_float(&size),
            second: Some(corrections.second.clone()),
        }
    }
}

/// Returns the direction of an Adam step. The second moment is corrected for the initial value 0. The step
/// size contains the correction of the first moment.
fn adam(
    emit: &mut Emitter,
    state: &mut StateBuilder,
    update: &Update<'_>,
    [beta1, beta2, epsilon]: [f64; 3],
    correction: &str,
) -> String {
    let name = update.parameter.name;
    let mean = state.zeros_like(name, SlotKind::First);
    let mean = blend(emit, &mean, beta1, update.gradient);
    state.next(emit, name, SlotKind::First, &mean);

    let square = emit.mul(update.gradient, update.gradient);
    let variance = state.zeros_like(name, SlotKind::Second);
    let variance = blend(emit, &variance, beta2, &square);
    state.next(emit, name, SlotKind::Second, &variance);

    let root = emit.node("Sqrt", &[&variance], vec![]);
    let corrected = emit.div(&root, correction);
    let epsilon = emit.scalar(epsilon);
    let denominator = emit.add(&corrected, &epsilon);
    emit.div(&mean, &denominator)
}

/// Emits `beta·before + (1 - beta)·new`.
fn blend(emit: &mut Emitter, before: &str, beta: f64, new: &str) -> String {
    let kept = emit.scale(before, beta);
    let added = emit.scale(new, 1.0 - beta);
    emit.add(&kept, &added)
}
