//! Operators that quantize and dequantize values.

use super::operator::Effort::Passing;
use super::operator::HeadPart::Tail;
use super::operator::Operator;
use crate::onnx::data_type;
use crate::values::{Context, InferredValue, RuleResult, Unresolved, mismatch};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("DequantizeLinear", 10, dequantized)
        .rows(|view| view.only_samples())
        .shrinks(true)
        .effort(Passing)
        .head(Tail),
    Operator::new("QuantizeLinear", 10, quantized)
        .rows(|view| view.only_samples())
        .shrinks(true)
        .effort(Passing)
        .head(Tail),
    // The range is computed from the whole batch, so samples are not independent.
    Operator::new("DynamicQuantizeLinear", 11, dynamically_quantized).versions(None),
];

/// Returns unsigned bytes, the scale and the zero point.
fn dynamically_quantized(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    Ok(vec![
        InferredValue::with_shape(data_type::UINT8, context.dims(0)?.to_vec()),
        InferredValue::with_shape(context.data_type(0), Vec::new()),
        InferredValue::with_shape(data_type::UINT8, Vec::new()),
    ])
}

/// Returns integers of the zero point's type, by default unsigned bytes.
fn quantized(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let code = match context.node.input_name(2) {
        Some(_) => context.data_type(2),
        None => {
            let named = context
                .node
                .int("output_dtype")
                .and_then(|code| i32::try_from(code).ok());
            named.filter(|&code| code != 0).unwrap_or(data_type::UINT8)
        }
    };
    scaled(context, code)
}

/// Returns numbers of the scale's type.
fn dequantized(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    scaled(context, context.data_type(1))
}

/// Returns the shape of the first input. Supports a single scale and a scale per slice of an axis.
fn scaled(context: &Context<'_>, code: i32) -> RuleResult<Vec<InferredValue>> {
    let dims = context.dims(0)?;
    match context.dims(1)? {
        [] | [1] => {}
        [scales] => {
            let axis = context.axis(1)?;
            if dims.get(axis) != Some(scales) {
                return mismatch(format!("{scales} scales for axis {axis} of {dims:?}"));
            }
        }
        // Blocks with separate scales are used for weights of large language models.
        _ => return Err(Unresolved::Unknown),
    }
    Ok(vec![InferredValue::with_shape(code, dims.to_vec())])
}
