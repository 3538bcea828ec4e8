//! Quantization, with the straight-through estimator: the forward pass rounds, and the gradient passes
//! unchanged where the range does not clip.

use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};
use frostline_graph::onnx::data_type;

/// Emits QuantizeLinear or DynamicQuantizeLinear followed by DequantizeLinear. Returns the numbers that the
/// quantized output represents, and the tensors of all outputs.
pub(crate) fn quantized(tape: &mut Tape, call: &NodeCall<'_>) -> Result<(Value, Vec<String>), TrainingError> {
    let input = call.value(0)?;
    let inside = inside(call, input.rank())?;
    let tensors = call.tensors(tape).ok_or_else(|| call.no_rule())?;
    let inputs: Vec<&str> = tensors.iter().map(String::as_str).collect();
    let outputs = tape.emit.copy(call.node, &inputs);
    let dynamic = call.node.op_type == "DynamicQuantizeLinear";
    let scale = if dynamic { &outputs } else { &tensors }
        .get(1..)
        .unwrap_or_default();
    let parts: Vec<&str> = outputs.iter().take(1).chain(scale).map(String::as_str).collect();
    let attributes = call.node.attribute.iter();
    let attributes = attributes.filter(|attribute| matches!(attribute.name.as_str(), "axis" | "block_size"));
    let attributes = attributes.cloned().collect();
    let represented = tape.emit.node("DequantizeLinear", &parts, attributes);
    let output = call.output(TensorForm::Standard, represented);
    let x = tape.standard(&input);
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        let Some(ClipRange { dims, low, high }) = inside else {
            return dy.to_owned();
        };
        let low = tape.emit.floats(&dims, &low);
        let high = tape.emit.floats(&dims, &high);
        let above = tape.emit.node("Greater", &[&x, &low], vec![]);
        let below = tape.emit.node("Less", &[&x, &high], vec![]);
        let within = tape.emit.node("And", &[&above, &below], vec![]);
        let ones = tape.emit.cast_float(&within);
        tape.emit.mul(dy, &ones)
    });
    Ok((output, outputs))
}

/// Bounds of the inputs that are not clipped, for every scale.
struct ClipRange {
    dims: Vec<usize>,
    low: Vec<f64>,
    high: Vec<f64>,
}

/// Returns the range of a QuantizeLinear, or `None` if nothing is clipped: the range of a
/// DynamicQuantizeLinear contains all elements. A computed scale is treated in the same way.
fn inside(call: &NodeCall<'_>, rank: usize) -> Result<Option<ClipRange>, TrainingError> {
    if call.node.op_type == "DynamicQuantizeLinear" {
        return Ok(None);
    }
    let (least, most) = match call.output_type() {
        Some(data_type::UINT8) => (0.0, 255.0),
        Some(data_type::INT8) => (-128.0, 127.0),
        Some(data_type::UINT16) => (0.0, 65_535.0),
        Some(data_type::INT16) => (-32_768.0, 32_767.0),
        _ => return Err(call.unsupported("only integers of 8 and 16 bits are supported")),
    };
    let Ok(Some(scales)) = call.constant_floats(1) else {
        return Ok(None);
    };
    let zeros = call.constant_ints(2)?.unwrap_or_else(|| vec![0; scales.len()]);
    if zeros.len() != scales.len() {
        return Err(call.unsupported("scale and zero point do not have the same shape"));
    }
    let dims = match scales.len() {
        1 => Vec::new(),
        count => {
            let axis = call.axis(call.int("axis", 1), rank)?;
            (axis..rank)
                .map(|at| if at == axis { count } else { 1 })
                .collect()
        }
    };
    // Rounding extends the range by half a step on either side.
    let [low, high] = [least - 0.5, most + 0.5].map(|limit: f64| {
        let pairs = scales.iter().zip(&zeros);
        pairs
            .map(|(scale, zero)| (limit - *zero as f64) * scale)
            .collect()
    });
    Ok(Some(ClipRange { dims, low, high }))
}
