use crate::emitter::Emitter;
use frostline_graph::build;

/// The loss, a scalar, and its gradient with respect to the logits.
pub(crate) struct Loss {
    pub(crate) loss: String,
    pub(crate) gradient: String,
}

/// Mean softmax cross-entropy of `logits` `[batch, classes]` with `labels`, `i64[batch]`, each in `0..classes`.
/// `LogSoftmax` subtracts the largest logit first, so no exponential overflows.
pub(crate) fn cross_entropy(
    emit: &mut Emitter,
    logits: &str,
    labels: &str,
    batch: usize,
    classes: usize,
) -> Loss {
    let share = 1.0 / batch as f64;
    let log_probabilities = emit.node("LogSoftmax", &[logits], vec![build::int("axis", 1)]);
    let column = emit.reshape(labels, &[batch, 1]);
    let every_class = emit.ints((0..classes).map(|class| class as i64));
    let chosen = emit.node("Equal", &[&column, &every_class], vec![]);
    let target = emit.node(
        "Cast",
        &[&chosen],
        vec![build::int("to", emit.float.data_type().into())],
    );
    let chosen = emit.mul(&log_probabilities, &target);
    let total = emit.sum(&chosen, [0, 1], false);
    let loss = emit.scale(&total, -share);
    let probabilities = emit.node("Exp", &[&log_probabilities], vec![]);
    let difference = emit.sub(&probabilities, &target);
    let gradient = emit.scale(&difference, share);
    Loss { loss, gradient }
}
