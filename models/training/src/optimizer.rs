use crate::TrainingError;
use crate::emitter::Emitter;
use crate::state::{SlotKind, StateBuilder};
use frostline_graph::build;
use frostline_graph::onnx::data_type;

/// How a step turns gradients into new weights. Formulas, defaults of the state and the order of operations are
/// PyTorch's; the learning rate comes with every step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    /// Stochastic gradient descent: `v = momentum·v + g + weight_decay·w`, `w = w - rate·v` (`torch.optim.SGD`).
    Sgd {
        /// 0 (off) up to, but not including, 1.
        momentum: f64,
        /// At least 0 (off).
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay and bias correction (`torch.optim.AdamW`).
    AdamW {
        /// Decay of the mean of gradients, 0 up to, but not including, 1; usually 0.9.
        beta1: f64,
        /// Decay of the mean of squared gradients, 0 up to, but not including, 1; usually 0.999.
        beta2: f64,
        /// Added to the denominator, above 0; usually 1e-8.
        epsilon: f64,
        /// At least 0 (off); usually 0.01.
        weight_decay: f64,
    },
}

impl Optimizer {
    /// Refuses settings outside their ranges.
    ///
    /// # Errors
    /// [`TrainingError::Optimizer`] naming the first such setting.
    pub fn check(&self) -> Result<(), TrainingError> {
        match *self {
            Self::Sgd {
                momentum,
                weight_decay,
            } => {
                fraction("momentum", momentum)?;
                not_negative("weight_decay", weight_decay)
            }
            Self::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => {
                fraction("beta1", beta1)?;
                fraction("beta2", beta2)?;
                if !(epsilon > 0.0 && epsilon.is_finite()) {
                    return Err(setting("epsilon", epsilon, "above 0"));
                }
                not_negative("weight_decay", weight_decay)
            }
        }
    }
}

fn fraction(name: &'static str, value: f64) -> Result<(), TrainingError> {
    if (0.0..1.0).contains(&value) {
        Ok(())
    } else {
        Err(setting(name, value, "at least 0 and below 1"))
    }
}

fn not_negative(name: &'static str, value: f64) -> Result<(), TrainingError> {
    if value >= 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(setting(name, value, "at least 0"))
    }
}

fn setting(setting: &'static str, value: f64, expected: &'static str) -> TrainingError {
    TrainingError::Optimizer {
        setting,
        value,
        expected,
    }
}

/// A parameter that is due for its update.
pub(crate) struct Update<'a> {
    /// The parameter's name in the suffix.
    pub(crate) name: &'a str,
    /// The tensor that holds its value before the step, as its state slot does.
    pub(crate) weight: &'a str,
    /// The tensor that holds its gradient, the same way.
    pub(crate) gradient: &'a str,
    /// The shape of its state slot.
    pub(crate) dims: &'a [usize],
}

/// What the updates of one step share.
pub(crate) enum Updater {
    Sgd {
        momentum: f64,
        weight_decay: f64,
        rate: String,
    },
    AdamW(Adam),
}

pub(crate) struct Adam {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    /// `1 - rate·weight_decay`, or `None` without weight decay.
    shrink: Option<String>,
    /// `rate / (1 - beta1^step)`.
    step_size: String,
    /// `sqrt(1 - beta2^step)`.
    correction: String,
}

impl Updater {
    pub(crate) fn new(
        optimizer: Optimizer,
        rate: &str,
        emit: &mut Emitter,
        state: &mut StateBuilder,
    ) -> Self {
        match optimizer {
            Optimizer::Sgd {
                momentum,
                weight_decay,
            } => Self::Sgd {
                momentum,
                weight_decay,
                rate: rate.to_owned(),
            },
            Optimizer::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => {
                let shrink = (weight_decay != 0.0).then(|| {
                    let decay = emit.scale(rate, weight_decay);
                    let one = emit.scalar(1.0);
                    emit.sub(&one, &decay)
                });
                let [step_size, correction] = corrections(emit, state, rate, [beta1, beta2]);
                Self::AdamW(Adam {
                    beta1,
                    beta2,
                    epsilon,
                    shrink,
                    step_size,
                    correction,
                })
            }
        }
    }

    /// Emits the update of one parameter and returns the tensor with its new value.
    pub(crate) fn apply(&self, emit: &mut Emitter, state: &mut StateBuilder, update: &Update<'_>) -> String {
        match self {
            Self::Sgd {
                momentum,
                weight_decay,
                rate,
            } => {
                let velocity = velocity(emit, state, update, *momentum, *weight_decay);
                let step = emit.mul(&velocity, rate);
                emit.sub(update.weight, &step)
            }
            Self::AdamW(adam) => adam.apply(emit, state, update),
        }
    }
}

/// The direction an SGD step takes; with momentum it is also the next state.
fn velocity(
    emit: &mut Emitter,
    state: &mut StateBuilder,
    update: &Update<'_>,
    momentum: f64,
    weight_decay: f64,
) -> String {
    if momentum == 0.0 {
        return add_scaled(emit, update, update.weight, weight_decay);
    }
    let mut before = state.zeros_like(update.name, SlotKind::Momentum);
    if weight_decay != 0.0 {
        let decay = emit.scale(update.weight, weight_decay / momentum);
        before = emit.add(&before, &decay);
    }
    let velocity = add_scaled(emit, update, &before, momentum);
    state.next(emit, update.name, SlotKind::Momentum, &velocity);
    velocity
}

/// The gradient plus `factor` times `addend`; where the gradient is a matrix product, in the same pass.
fn add_scaled(emit: &mut Emitter, update: &Update<'_>, addend: &str, factor: f64) -> String {
    if factor == 0.0 {
        return update.gradient.to_owned();
    }
    emit.product_plus(update.gradient, addend, factor, update.dims)
        .unwrap_or_else(|| {
            let scaled = emit.scale(addend, factor);
            emit.add(&scaled, update.gradient)
        })
}

/// Raises the step counter and returns it as an `f64` scalar.
fn count_step(emit: &mut Emitter, state: &mut StateBuilder) -> String {
    let before = state.counter();
    let one = emit.integer(1);
    let step = emit.add(&before, &one);
    state.next(emit, "", SlotKind::Step, &step);
    emit.node("Cast", &[&step], vec![build::int("to", data_type::DOUBLE.into())])
}

/// The step size and the correction of [`Adam`].
fn corrections(emit: &mut Emitter, state: &mut StateBuilder, rate: &str, betas: [f64; 2]) -> [String; 2] {
    let step = count_step(emit, state);
    let rate = emit.node("Cast", &[rate], vec![build::int("to", data_type::DOUBLE.into())]);
    let [first, second] = betas.map(|beta| bias(emit, beta, &step));
    let step_size = emit.div(&rate, &first);
    let correction = emit.node("Sqrt", &[&second], vec![]);
    [step_size, correction].map(|scalar| {
        let to = build::int("to", emit.float.data_type().into());
        emit.node("Cast", &[&scalar], vec![to])
    })
}

/// `1 - beta^step`, in `f64`: at the first steps with beta near 1 an `f32` would lose four digits.
fn bias(emit: &mut Emitter, beta: f64, step: &str) -> String {
    let (one, beta) = (emit.double(1.0), emit.double(beta));
    let power = emit.node("Pow", &[&beta, step], vec![]);
    emit.sub(&one, &power)
}

impl Adam {
    fn apply(&self, emit: &mut Emitter, state: &mut StateBuilder, update: &Update<'_>) -> String {
        let mean = state.zeros_like(update.name, SlotKind::First);
        let mean = blend(emit, &mean, self.beta1, update.gradient);
        state.next(emit, update.name, SlotKind::First, &mean);

        let square = emit.mul(update.gradient, update.gradient);
        let variance = state.zeros_like(update.name, SlotKind::Second);
        let variance = blend(emit, &variance, self.beta2, &square);
        state.next(emit, update.name, SlotKind::Second, &variance);

        let root = emit.node("Sqrt", &[&variance], vec![]);
        let corrected = emit.div(&root, &self.correction);
        let epsilon = emit.scalar(self.epsilon);
        let denominator = emit.add(&corrected, &epsilon);
        let direction = emit.div(&mean, &denominator);
        let step = emit.mul(&direction, &self.step_size);
        match &self.shrink {
            Some(shrink) => {
                let shrunk = emit.mul(update.weight, shrink);
                emit.sub(&shrunk, &step)
            }
            None => emit.sub(update.weight, &step),
        }
    }
}

/// `beta·before + (1 - beta)·new`.
fn blend(emit: &mut Emitter, before: &str, beta: f64, new: &str) -> String {
    let (kept, added) = (emit.scale(before, beta), emit.scale(new, 1.0 - beta));
    emit.add(&kept, &added)
}
