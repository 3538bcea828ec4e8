use crate::TrainingError;
use crate::emitter::Emitter;
use crate::range::{above_zero, fraction, held, not_negative};
use crate::state::{SlotKind, StateBuilder};
use frostline_graph::build;
use frostline_graph::onnx::data_type;
use frostline_tensor::Data;
use std::collections::BTreeMap;

/// How a step turns gradients into new weights. Formulas, defaults of the state and the order of operations are
/// PyTorch's; the learning rate comes with every step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    /// Stochastic gradient descent: `d = g + weight_decay·w`, `v = momentum·v + d`, `w = w - rate·v` (`torch.optim.SGD`).
    Sgd {
        /// 0 (off) up to, but not including, 1.
        momentum: f64,
        /// Nesterov's way, `w = w - rate·(d + momentum·v)`; only with a momentum.
        nesterov: bool,
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
    /// [`TrainingError::Setting`] naming the first such setting.
    pub fn check(&self) -> Result<(), TrainingError> {
        match *self {
            Self::Sgd {
                momentum,
                nesterov,
                weight_decay,
            } => {
                fraction("momentum", momentum)?;
                held(
                    "momentum",
                    momentum,
                    !nesterov || momentum > 0.0,
                    "above 0 for Nesterov's way",
                )?;
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
                above_zero("epsilon", epsilon)?;
                not_negative("weight_decay", weight_decay)
            }
        }
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
    /// What the learning rate is multiplied by for it.
    pub(crate) factor: f64,
    /// Which counter of steps it has.
    pub(crate) joined: u32,
    /// The tensors whose making still reads the weight once the gradient is there. The new value is written after them.
    pub(crate) after: &'a [String],
}

/// What the updates of one step share.
pub(crate) struct Updater {
    optimizer: Optimizer,
    /// The step's learning rate, a scalar.
    rate: String,
    /// By the bits of what the learning rate is multiplied by, and by the counter of steps.
    rates: BTreeMap<(u64, u32), Rate>,
    /// By the counter of steps.
    corrections: BTreeMap<u32, Corrections>,
}

/// One learning rate.
#[derive(Clone)]
struct Rate {
    rate: String,
    /// AdamW's.
    steps: Option<AdamSteps>,
}

#[derive(Clone)]
struct AdamSteps {
    /// `1 - rate·weight_decay`, or `None` without weight decay.
    shrink: Option<String>,
    /// `rate / (1 - beta1^step)`.
    size: String,
    /// `sqrt(1 - beta2^step)`.
    second: String,
}

/// Of AdamW, by the number of the step.
#[derive(Clone)]
struct Corrections {
    /// `1 - beta1^step`, an `f64` scalar.
    first: String,
    /// `sqrt(1 - beta2^step)`.
    second: String,
}

impl Updater {
    pub(crate) fn new(optimizer: Optimizer, rate: &str) -> Self {
        Self {
            optimizer,
            rate: rate.to_owned(),
            rates: BTreeMap::new(),
            corrections: BTreeMap::new(),
        }
    }

    /// Emits the update of one parameter and returns the tensor with its new value.
    pub(crate) fn apply(
        &mut self,
        emit: &mut Emitter,
        state: &mut StateBuilder,
        update: &Update<'_>,
    ) -> String {
        let rate = self.rate(emit, state, update);
        match (self.optimizer, &rate.steps) {
            (
                Optimizer::AdamW {
                    beta1,
                    beta2,
                    epsilon,
                    ..
                },
                Some(steps),
            ) => {
                let direction = adam(emit, state, update, [beta1, beta2, epsilon], &steps.second);
                let size = emit.delayed(&steps.size, update.after);
                let step = emit.mul(&direction, &size);
                match &steps.shrink {
                    Some(shrink) => {
                        let shrunk = emit.mul(update.weight, shrink);
                        emit.sub(&shrunk, &step)
                    }
                    None => emit.sub(update.weight, &step),
                }
            }
            (optimizer, ..) => {
                let direction = descent(emit, state, update, optimizer);
                let rate = emit.delayed(&rate.rate, update.after);
                let step = emit.mul(&direction, &rate);
                emit.sub(update.weight, &step)
            }
        }
    }

    fn rate(&mut self, emit: &mut Emitter, state: &mut StateBuilder, update: &Update<'_>) -> Rate {
        let of = (update.factor.to_bits(), update.joined);
        if let Some(known) = self.rates.get(&of) {
            return known.clone();
        }
        let rate = emit.scale(&self.rate, update.factor);
        let steps = match self.optimizer {
            Optimizer::AdamW {
                beta1,
                beta2,
                weight_decay,
                ..
            } => {
                let corrections = self.corrections.entry(update.joined);
                let corrections = corrections
                    .or_insert_with(|| Corrections::new(emit, state, update.joined, [beta1, beta2]));
                Some(AdamSteps::new(emit, &rate, weight_decay, corrections))
            }
            Optimizer::Sgd { .. } => None,
        };
        let made = Rate { rate, steps };
        self.rates.insert(of, made.clone());
        made
    }
}

/// The direction an SGD step takes; with momentum the velocity is also the next state.
fn descent(
    emit: &mut Emitter,
    state: &mut StateBuilder,
    update: &Update<'_>,
    optimizer: Optimizer,
) -> String {
    let Optimizer::Sgd {
        momentum,
        nesterov,
        weight_decay,
    } = optimizer
    else {
        return update.gradient.to_owned();
    };
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
    if !nesterov {
        return velocity;
    }
    let direction = add_scaled(emit, update, update.weight, weight_decay);
    let ahead = emit.scale(&velocity, momentum);
    emit.add(&direction, &ahead)
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

impl Corrections {
    fn new(emit: &mut Emitter, state: &mut StateBuilder, joined: u32, betas: [f64; 2]) -> Self {
        let step = count_step(emit, state, joined);
        let [first, second] = betas.map(|beta| bias(emit, beta, &step));
        let root = emit.node("Sqrt", &[&second], vec![]);
        Self {
            first,
            second: narrow(emit, &root),
        }
    }
}

/// Raises a step counter and returns it as an `f64` scalar.
fn count_step(emit: &mut Emitter, state: &mut StateBuilder, joined: u32) -> String {
    let name = match joined {
        0 => String::new(),
        joined => format!("{joined}/"),
    };
    let before = state.scalar(&name, SlotKind::Step, Data::I64(vec![0]));
    let one = emit.integer(1);
    let step = emit.add(&before, &one);
    state.next(emit, &name, SlotKind::Step, &step);
    widen(emit, &step)
}

/// `1 - beta^step`, in `f64`: at the first steps with beta near 1 an `f32` would lose four digits.
fn bias(emit: &mut Emitter, beta: f64, step: &str) -> String {
    let (one, beta) = (emit.double(1.0), emit.double(beta));
    let power = emit.node("Pow", &[&beta, step], vec![]);
    emit.sub(&one, &power)
}

fn widen(emit: &mut Emitter, scalar: &str) -> String {
    let to = build::int("to", data_type::DOUBLE.into());
    emit.node("Cast", &[scalar], vec![to])
}

/// An `f64` scalar in the suffix's own type.
fn narrow(emit: &mut Emitter, scalar: &str) -> String {
    let to = build::int("to", emit.float.data_type().into());
    emit.node("Cast", &[scalar], vec![to])
}

impl AdamSteps {
    fn new(emit: &mut Emitter, rate: &str, weight_decay: f64, corrections: &Corrections) -> Self {
        let shrink = (weight_decay != 0.0).then(|| {
            let decay = emit.scale(rate, weight_decay);
            let one = emit.scalar(1.0);
            emit.sub(&one, &decay)
        });
        let wide = widen(emit, rate);
        let size = emit.div(&wide, &corrections.first);
        Self {
            shrink,
            size: narrow(emit, &size),
            second: corrections.second.clone(),
        }
    }
}

/// The direction of a step of Adam, moments corrected for their beginning at 0 but for the first one's, which is in the step's size.
fn adam(
    emit: &mut Emitter,
    state: &mut StateBuilder,
    update: &Update<'_>,
    [beta1, beta2, epsilon]: [f64; 3],
    correction: &str,
) -> String {
    let mean = state.zeros_like(update.name, SlotKind::First);
    let mean = blend(emit, &mean, beta1, update.gradient);
    state.next(emit, update.name, SlotKind::First, &mean);

    let square = emit.mul(update.gradient, update.gradient);
    let variance = state.zeros_like(update.name, SlotKind::Second);
    let variance = blend(emit, &variance, beta2, &square);
    state.next(emit, update.name, SlotKind::Second, &variance);

    let root = emit.node("Sqrt", &[&variance], vec![]);
    let corrected = emit.div(&root, correction);
    let epsilon = emit.scalar(epsilon);
    let denominator = emit.add(&corrected, &epsilon);
    emit.div(&mean, &denominator)
}

/// `beta·before + (1 - beta)·new`.
fn blend(emit: &mut Emitter, before: &str, beta: f64, new: &str) -> String {
    let (kept, added) = (emit.scale(before, beta), emit.scale(new, 1.0 - beta));
    emit.add(&kept, &added)
}
