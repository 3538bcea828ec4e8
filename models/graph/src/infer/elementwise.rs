//! Operators that work element by element, or keep the shape of their first input.

use super::{Context, Ruled, Value, mismatch};
use crate::onnx::data_type;

/// Operators whose first output has the shape of their first input.
pub(crate) const KEEPS_SHAPE: &[&str] = &[
    "Abs",
    "BatchNormalization",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "CumSum",
    "Dropout",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "Identity",
    "InstanceNormalization",
    "IsInf",
    "IsNaN",
    "LRN",
    "LayerNormalization",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "MeanVarianceNormalization",
    "Mish",
    "Neg",
    "Not",
    "PRelu",
    "RMSNormalization",
    "Reciprocal",
    "Relu",
    "Round",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Trilu",
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
