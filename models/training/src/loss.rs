use crate::TrainingError;
use crate::emitter::Emitter;
use crate::range::{above_zero, fraction, not_negative};
use crate::source::Source;
use frostline_graph::build;
use frostline_tensor::DType;

/// What a step minimizes. Formulas and names are PyTorch's; each is a mean over the batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Loss {
    /// Softmax cross-entropy, for one class a sample (`torch.nn.CrossEntropyLoss`).
    CrossEntropy {
        /// Part of the target that is spread evenly over all classes, 0 (none) up to, but not including, 1.
        label_smoothing: f64,
        /// What each class counts; `None` counts all alike. The mean is over the weights of the samples' classes.
        class_weights: Option<Vec<f64>>,
        /// Whether targets are probabilities of all classes, as mixed samples have them, instead of the class. Then the mean is over samples,
        /// and `class_weights` count in each sample alone.
        mixed: bool,
    },
    /// Each output on its own a yes or no, for any number of classes a sample (`torch.nn.BCEWithLogitsLoss`).
    BinaryCrossEntropy {
        /// What a yes counts against a no, for each output; `None` is 1.
        positive_weights: Option<Vec<f64>>,
    },
    /// Mean squared difference, for numbers (`torch.nn.MSELoss`).
    MeanSquared,
}

impl Default for Loss {
    fn default() -> Self {
        Self::CrossEntropy {
            label_smoothing: 0.0,
            class_weights: None,
            mixed: false,
        }
    }
}

impl Loss {
    /// Whether targets are `i64[batch]`, each the number of a class; else they are floats `[batch, outputs]`.
    #[must_use]
    pub fn takes_classes(&self) -> bool {
        matches!(self, Self::CrossEntropy { mixed: false, .. })
    }

    pub(crate) fn check(&self) -> Result<(), TrainingError> {
        match self {
            Self::CrossEntropy {
                label_smoothing,
                class_weights,
                ..
            } => {
                fraction("label_smoothing", *label_smoothing)?;
                let mut weights = class_weights.iter().flatten();
                weights.try_for_each(|weight| not_negative("the weight of a class", *weight))
            }
            Self::BinaryCrossEntropy { positive_weights } => {
                let mut weights = positive_weights.iter().flatten();
                weights.try_for_each(|weight| above_zero("the weight of a yes", *weight))
            }
            Self::MeanSquared => Ok(()),
        }
    }

    /// Type and shape of the targets of a batch.
    pub(crate) fn targets(&self, source: &Source<'_>) -> (DType, Vec<usize>) {
        if self.takes_classes() {
            (DType::I64, vec![source.batch])
        } else {
            (source.dtype(), vec![source.batch, source.classes])
        }
    }

    /// Refuses weights for another number of outputs than the suffix has.
    pub(crate) fn fits(&self, classes: usize) -> Result<(), TrainingError> {
        let weights = match self {
            Self::CrossEntropy { class_weights, .. } => class_weights,
            Self::BinaryCrossEntropy { positive_weights } => positive_weights,
            Self::MeanSquared => &None,
        };
        match weights {
            Some(weights) if weights.len() != classes => Err(TrainingError::suffix(format!(
                "it has {classes} outputs, but there are weights for {}",
                weights.len()
            ))),
            _ => Ok(()),
        }
    }

    /// Emits the loss of `logits` `[batch, outputs]`, and the gradient of the sum that it is the mean of.
    pub(crate) fn emit(
        &self,
        emit: &mut Emitter,
        source: &Source<'_>,
        logits: &str,
        targets: &str,
    ) -> LossTensors {
        match self {
            Self::CrossEntropy {
                label_smoothing,
                class_weights,
                mixed,
            } => {
                let hot = if *mixed {
                    targets.to_owned()
                } else {
                    one_hot(emit, source, targets)
                };
                let weighted = class_weights
                    .as_deref()
                    .map(|weights| emit.floats(&[1, source.classes], weights));
                let count = match &weighted {
                    Some(weights) if !mixed => weights_of_samples(emit, &hot, weights),
                    _ => emit.scalar(source.batch as f64),
                };
                let target = smoothed(emit, &hot, *label_smoothing, source.classes);
                cross_entropy(emit, logits, &target, weighted.as_deref(), &count)
            }
            Self::BinaryCrossEntropy { positive_weights } => {
                binary_cross_entropy(emit, source, logits, targets, positive_weights.as_deref())
            }
            Self::MeanSquared => mean_squared(emit, source, logits, targets),
        }
    }
}

/// The loss, a scalar, and the gradient of what it is the mean of.
pub(crate) struct LossTensors {
    pub(crate) loss: String,
    /// Of the sum, with respect to the logits.
    pub(crate) gradient: String,
    /// What the batch counts, a scalar: the loss is the sum over it.
    pub(crate) count: String,
}

/// `labels`, `i64[batch]`, as `[batch, classes]` of 0 and 1.
fn one_hot(emit: &mut Emitter, source: &Source<'_>, labels: &str) -> String {
    let column = emit.reshape(labels, &[source.batch, 1]);
    let every_class = emit.ints((0..source.classes).map(|class| class as i64));
    let chosen = emit.node("Equal", &[&column, &every_class], vec![]);
    let to = build::int("to", emit.float.data_type().into());
    emit.node("Cast", &[&chosen], vec![to])
}

/// What the classes of all samples of a batch count together.
fn weights_of_samples(emit: &mut Emitter, hot: &str, weights: &str) -> String {
    let counted = emit.mul(hot, weights);
    emit.sum(&counted, [0, 1], false)
}

fn smoothed(emit: &mut Emitter, hot: &str, smoothing: f64, classes: usize) -> String {
    if smoothing == 0.0 {
        return hot.to_owned();
    }
    let kept = emit.scale(hot, 1.0 - smoothing);
    let spread = emit.scalar(smoothing / classes as f64);
    emit.add(&kept, &spread)
}

/// `-Σ weights·target·log softmax(logits) / count`. `LogSoftmax` subtracts the largest logit first, so no exponential overflows.
fn cross_entropy(
    emit: &mut Emitter,
    logits: &str,
    target: &str,
    weights: Option<&str>,
    count: &str,
) -> LossTensors {
    let log_probabilities = emit.node("LogSoftmax", &[logits], vec![build::int("axis", 1)]);
    let target = weights.map_or_else(|| target.to_owned(), |weights| emit.mul(target, weights));
    let part = emit.mul(&log_probabilities, &target);
    let total = emit.sum(&part, [0, 1], false);
    let mean = emit.div(&total, count);
    let loss = emit.node("Neg", &[&mean], vec![]);
    let mut probabilities = emit.node("Exp", &[&log_probabilities], vec![]);
    if weights.is_some() {
        let whole = emit.sum(&target, [1], true);
        probabilities = emit.mul(&probabilities, &whole);
    }
    LossTensors {
        loss,
        gradient: emit.sub(&probabilities, &target),
        count: count.to_owned(),
    }
}

/// With `w = target·positive + 1 - target`, which is what a sample's output counts: the mean of `-positive·target·log σ(x) - (1 - target)·log
/// (1 - σ(x))`, which is `(1 - target)·x + w·softplus(-x)`.
fn binary_cross_entropy(
    emit: &mut Emitter,
    source: &Source<'_>,
    logits: &str,
    targets: &str,
    positive: Option<&[f64]>,
) -> LossTensors {
    let one = emit.scalar(1.0);
    let no = emit.sub(&one, targets);
    let counts = match positive {
        Some(weights) => {
            let weights = emit.floats(&[1, source.classes], weights);
            let yes = emit.mul(targets, &weights);
            emit.add(&yes, &no)
        }
        None => one.clone(),
    };
    let negated = emit.node("Neg", &[logits], vec![]);
    let softplus = softplus(emit, &negated);
    let yes = emit.mul(&counts, &softplus);
    let of_no = emit.mul(&no, logits);
    let each = emit.add(&of_no, &yes);
    let count = emit.scalar((source.batch * source.classes) as f64);
    let total = emit.sum(&each, [0, 1], false);
    // d softplus(-x) / dx = -σ(-x)
    let doubt = emit.node("Sigmoid", &[&negated], vec![]);
    let doubted = emit.mul(&counts, &doubt);
    LossTensors {
        loss: emit.div(&total, &count),
        gradient: emit.sub(&no, &doubted),
        count,
    }
}

/// `max(x, 0) + log(1 + exp(-|x|))`: no exponential overflows.
fn softplus(emit: &mut Emitter, tensor: &str) -> String {
    let size = emit.node("Abs", &[tensor], vec![]);
    let negated = emit.node("Neg", &[&size], vec![]);
    let small = emit.node("Exp", &[&negated], vec![]);
    let one = emit.scalar(1.0);
    let more = emit.add(&one, &small);
    let rest = emit.node("Log", &[&more], vec![]);
    let above = emit.node("Relu", &[tensor], vec![]);
    emit.add(&above, &rest)
}

fn mean_squared(emit: &mut Emitter, source: &Source<'_>, outputs: &str, targets: &str) -> LossTensors {
    let count = emit.scalar((source.batch * source.classes) as f64);
    let difference = emit.sub(outputs, targets);
    let square = emit.mul(&difference, &difference);
    let total = emit.sum(&square, [0, 1], false);
    LossTensors {
        loss: emit.div(&total, &count),
        gradient: emit.scale(&difference, 2.0),
        count,
    }
}
