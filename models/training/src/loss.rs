use crate::TrainingError;
use crate::emitter::Emitter;
use crate::range::{above_zero, fraction, not_negative};
use crate::source::SourceGraph;
use frostline_graph::build;
use frostline_tensor::DType;

/// Loss function of a step. Formulas and names follow PyTorch. Losses are means over the batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Loss {
    /// Softmax cross-entropy with a class per sample (`torch.nn.CrossEntropyLoss`).
    CrossEntropy {
        /// Fraction of the target to spread evenly over all classes, 0 (off) to below 1.
        label_smoothing: f64,
        /// Weight of every class; `None` weighs all classes equally. The loss is divided by the sum of the
        /// weights of the samples' classes. If this sum is 0, the loss is 0, whereas PyTorch returns NaN.
        class_weights: Option<Vec<f64>>,
        /// True if targets are probabilities of all classes, as for mixed samples, instead of class indices.
        /// In this case the loss is divided by the number of samples, and `class_weights` only apply within a
        /// sample.
        mixed: bool,
    },
    /// Independent binary classification per output (`torch.nn.BCEWithLogitsLoss`). Samples can have any
    /// number of classes.
    BinaryCrossEntropy {
        /// Weight of the positive class per output; `None` is 1.
        positive_weights: Option<Vec<f64>>,
    },
    /// Mean squared error for regression (`torch.nn.MSELoss`).
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
    /// Returns true if targets are class indices, `i64[batch]`. All other targets are floats, `[batch,
    /// outputs]`.
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
                weights.try_for_each(|weight| not_negative("a class weight", *weight))
            }
            Self::BinaryCrossEntropy { positive_weights } => {
                let mut weights = positive_weights.iter().flatten();
                weights.try_for_each(|weight| above_zero("a positive weight", *weight))
            }
            Self::MeanSquared => Ok(()),
        }
    }

    /// Returns the type and shape of the targets.
    pub(crate) fn targets(&self, source: &SourceGraph<'_>) -> (DType, Vec<usize>) {
        if self.takes_classes() {
            (DType::I64, vec![source.batch])
        } else {
            (source.dtype(), vec![source.batch, source.classes])
        }
    }

    /// Refuses weights if the length differs from the number of outputs.
    pub(crate) fn fits(&self, classes: usize) -> Result<(), TrainingError> {
        let weights = match self {
            Self::CrossEntropy { class_weights, .. } => class_weights,
            Self::BinaryCrossEntropy { positive_weights } => positive_weights,
            Self::MeanSquared => &None,
        };
        match weights {
            Some(weights) if weights.len() != classes => Err(TrainingError::suffix(format!(
                "it has {classes} outputs, but the loss has weights for {}",
                weights.len()
            ))),
            _ => Ok(()),
        }
    }

    /// Emits the loss of `logits` `[batch, outputs]`, and the gradient of the sum before the division by the
    /// count.
    pub(crate) fn emit(
        &self,
        emit: &mut Emitter,
        source: &SourceGraph<'_>,
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

/// Tensors of an emitted loss.
pub(crate) struct LossTensors {
    pub(crate) loss: String,
    /// Gradient of the sum with respect to the logits.
    pub(crate) gradient: String,
    /// Total weight of the batch, a scalar. The loss is the sum divided by it.
    pub(crate) count: String,
}

/// Converts `labels`, `i64[batch]`, to `[batch, classes]` with elements 0 and 1.
fn one_hot(emit: &mut Emitter, source: &SourceGraph<'_>, labels: &str) -> String {
    let column = emit.reshape(labels, &[source.batch, 1]);
    let every_class = emit.ints((0..source.classes).map(|class| class as i64));
    let chosen = emit.node("Equal", &[&column, &every_class], vec![]);
    emit.cast_float(&chosen)
}

/// Returns the sum of the class weights of all samples in a batch. It is above 0, so that a batch without
/// weight has no gradient instead of 0 / 0.
fn weights_of_samples(emit: &mut Emitter, hot: &str, weights: &str) -> String {
    let counted = emit.mul(hot, weights);
    let sum = emit.sum(&counted, [0, 1], false);
    let least = emit.scalar(f64::from(f32::MIN_POSITIVE));
    emit.node("Max", &[&sum, &least], vec![])
}

fn smoothed(emit: &mut Emitter, hot: &str, smoothing: f64, classes: usize) -> String {
    if smoothing == 0.0 {
        return hot.to_owned();
    }
    let kept = emit.scale(hot, 1.0 - smoothing);
    let spread = emit.scalar(smoothing / classes as f64);
    emit.add(&kept, &spread)
}

/// Emits `-Σ weights·target·log softmax(logits) / count`. `LogSoftmax` subtracts the largest logit first, so
/// no exponential overflows.
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

/// Emits the mean of `-positive·target·log σ(x) - (1 - target)·log (1 - σ(x))`. With `w = target·positive + 1
/// - target`, the weight of a sample's output, this equals `(1 - target)·x + w·softplus(-x)`.
fn binary_cross_entropy(
    emit: &mut Emitter,
    source: &SourceGraph<'_>,
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

/// Emits `max(x, 0) + log(1 + exp(-|x|))`, which cannot overflow.
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

fn mean_squared(emit: &mut Emitter, source: &SourceGraph<'_>, outputs: &str, targets: &str) -> LossTensors {
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
