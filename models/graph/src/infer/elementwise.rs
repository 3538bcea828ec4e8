//! Operators that work element by element, or keep the shape of their first input.

use super::{Context, Ruled, Value, mismatch};
use crate::onnx::data_type;

/// Operators whose every output element depends on the input element at the same place, and on parameters.
pub(crate) const POINTWISE: &[&str] = &[
    "Abs",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Dropout",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Not",
    "PRelu",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
];

/// Operators that keep the shape of their first input but look at more than one of its elements.
pub(crate) const MIXING_IN_PLACE: &[&str] = &[
    "BatchNormalization",
    "CumSum",
    "GroupNormalization",
    "Hardmax",
    "InstanceNormalization",
    "LRN",
    "LayerNormalization",
    "LogSoftmax",
    "LpNormalization",
    "MeanVarianceNormalization",
    "RMSNormalization",
    "ScatterElements",
    "ScatterND",
    "Softmax",
    "Trilu",
];

/// Operators that broadcast their inputs to one shape.
pub(crate) const BROADCASTING: &[&str] = &[
    "Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Sum", "Mean", "BitShift",
];

/// Those of them that give truth values.
pub(crate) const COMPARING: &[&str] = &[
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "And",
    "Or",
    "Xor",
];

/// The shape two tensors broadcast to: aligned at the last axis, an axis of 1 stretches.
pub(crate) fn broadcast_dims(left: &[usize], right: &[usize]) -> Ruled<Vec<usize>> {
    let rank = left.len().max(right.len());
    let padded = |dims: &[usize]| -> Vec<usize> {
        std::iter::repeat_n(1, rank - dims.len())
            .chain(dims.iter().copied())
            .collect()
    };
    let pairs = padded(left).into_iter().zip(padded(right));
    pairs
        .map(|pair| match pair {
            (a, b) if a == b => Ok(a),
            (1, b) => Ok(b),
            (a, 1) => Ok(a),
            _ => mismatch(format!("{left:?} and {right:?} do not broadcast")),
        })
        .collect()
}

/// All inputs broadcast to one shape.
pub(crate) fn broadcast(context: &Context<'_>, data_type: i32) -> Ruled<Vec<Value>> {
    let dims = context
        .all_dims()?
        .into_iter()
        .try_fold(Vec::new(), |all, dims| broadcast_dims(&all, dims))?;
    Ok(vec![Value::of(data_type, dims)])
}

pub(crate) fn choose(context: &Context<'_>) -> Ruled<Vec<Value>> {
    broadcast(context, context.data_type(1))
}

pub(crate) fn cast(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let to = context
        .node
        .int("to")
        .and_then(|to| i32::try_from(to).ok())
        .unwrap_or_default();
    Ok(vec![Value::of(to, context.dims(0)?.to_vec())])
}

/// The shape of the first input. Further outputs (Dropout's mask) are known where ONNX gives them that shape too.
pub(crate) fn same(context: &Context<'_>) -> Ruled<Vec<Value>> {
    let dims = context.dims(0)?.to_vec();
    let data_type = match context.node.op_type.as_str() {
        "IsNaN" | "IsInf" => data_type::BOOL,
        "CastLike" => context.data_type(1),
        _ => context.data_type(0),
    };
    let mut outputs = vec![Value::of(data_type, dims.clone())];
    if context.node.op_type == "Dropout" {
        outputs.push(Value::of(data_type::BOOL, dims));
    }
    Ok(outputs)
}
