//! Gather, GatherElements, GatherND, Slice and Split, which select elements, and ScatterND, which overwrites them.

use super::placing::Selection;
use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};
use frostline_graph::onnx::AttributeProto;
use frostline_graph::{build, from_end};

pub(super) fn split(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Vec<Value>, TrainingError> {
    let input = call.value(0)?;
    let axis = call.axis(call.int("axis", 0), input.rank())?;
    let shapes = call.output_shapes();
    let lengths: Vec<usize> = shapes
        .iter()
        .filter_map(|shape| shape.get(axis).copied())
        .collect();
    if lengths.len() != call.node.output.len() || Some(&lengths.iter().sum()) != input.shape().get(axis) {
        return Err(call.unsupported("the lengths of the parts are unknown"));
    }
    let form = if axis == 1 && input.rank() > 2 {
        tape.preferred_form(&[&input])
    } else {
        TensorForm::Standard
    };
    let x = tape.tensor(&input, form);
    let parts = tape.emit.split(&x, &lengths, axis as i64);
    let flows = call.is_differentiable();
    let parts = shapes.iter().zip(parts);
    let outputs: Vec<Value> = parts
        .map(|(shape, part)| Value::new(shape, form, part, flows))
        .collect();
    tape.on_backward_of_many(&outputs, move |tape, gradients| {
        let parts: Vec<String> = gradients
            .iter()
            .map(|gradient| tape.tensor(gradient, form))
            .collect();
        let joined = tape.emit.concat(&parts, axis as i64);
        tape.accumulate_tensor(&input, form, joined);
    });
    Ok(outputs)
}

pub(super) fn slice(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let starts = bounds(call, "starts", 1)?;
    let ends = bounds(call, "ends", 2)?;
    let axes = match call.ints("axes", 3)? {
        Some(axes) => axes,
        None => (0..starts.len() as i64).collect(),
    };
    let steps = call.constant_ints(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    let mut places = Vec::new();
    for (((start, end), axis), step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let axis = call.axis(*axis, input.rank())?;
        let length = input.shape().get(axis).copied().unwrap_or(1);
        let positions = sliced_positions(length as i64, *start, *end, *step);
        if positions.iter().copied().ne(0..length) {
            places.push(Selection {
                axis,
                length,
                positions,
            });
        }
    }
    if places.is_empty() {
        return Ok(input);
    }
    let x = tape.standard(&input);
    let [starts, ends, axes, steps] = [starts, ends, axes, steps].map(|values| tape.emit.ints(values));
    let y = tape
        .emit
        .node("Slice", &[&x, &starts, &ends, &axes, &steps], vec![]);
    let output = call.output(TensorForm::Standard, y);
    let mut dims = output.shape().to_vec();
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        places.iter().fold(dy.to_owned(), |dy, places| {
            places.put_back(&mut tape.emit, &dy, &mut dims)
        })
    });
    Ok(output)
}

fn bounds(call: &NodeCall<'_>, name: &str, slot: usize) -> Result<Vec<i64>, TrainingError> {
    call.ints(name, slot)?
        .ok_or_else(|| call.unsupported("starts or ends are missing"))
}

/// Returns the selected positions of a slice along an axis, in order of selection.
fn sliced_positions(length: i64, start: i64, end: i64, step: i64) -> Vec<usize> {
    let (least, most) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let end = from_end(end, length).clamp(least, most);
    let start = from_end(start, length).clamp(0, most.max(0));
    let places = std::iter::successors(Some(start), |place| place.checked_add(step));
    places
        .take_while(|place| if step > 0 { *place < end } else { *place > end })
        .filter_map(|place| usize::try_from(place).ok())
        .collect()
}

pub(super) fn gather(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let axis = call.axis(call.int("axis", 0), call.value(0)?.rank())?;
    looked_up(tape, call, axis, vec![build::int("axis", axis as i64)])
}

/// Emits a lookup of slices along `axis`. The backward pass uses Pad or Gather if the positions are known and
/// distinct, and otherwise ScatterElements, which adds repeated positions.
fn looked_up(
    tape: &mut Tape,
    call: &NodeCall<'_>,
    axis: usize,
    attributes: Vec<AttributeProto>,
) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let indices = call.plain(1)?.to_owned();
    let x = tape.standard(&input);
    let y = tape.emit.node(&call.node.op_type, &[&x, &indices], attributes);
    let output = call.output(TensorForm::Standard, y);
    let length = input.shape().get(axis).copied().unwrap_or(1);
    let (outer, inner) = around(input.shape(), axis);
    let count = output.elements() / (outer * inner).max(1);
    let kept = call.constant_ints(1).ok().flatten();
    let kept = kept.and_then(|indices| positions(&indices, length));
    let dims = input.shape().to_vec();
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        let dy = tape.emit.reshape(dy, &[outer, count, inner]);
        let places = kept.map(|positions| Selection {
            axis: 1,
            length,
            positions,
        });
        let dx = match places.filter(Selection::are_distinct) {
            Some(places) => places.put_back(&mut tape.emit, &dy, &mut [outer, count, inner]),
            None => {
                let column = tape.emit.reshape(&indices, &[1, count, 1]);
                let everywhere = tape.emit.expand(&column, &[outer, count, inner]);
                scatter(tape, &everywhere, &dy, &[outer, length, inner], 1)
            }
        };
        tape.emit.reshape(&dx, &dims)
    });
    Ok(output)
}

/// Returns the number of elements before and after an axis.
fn around(dims: &[usize], axis: usize) -> (usize, usize) {
    let (before, after) = dims.split_at_checked(axis).unwrap_or((dims, &[]));
    (before.iter().product(), after.iter().skip(1).product())
}

/// Converts indices to positions. Negative indices count from the end. Returns `None` if an index is out of
/// range.
fn positions(indices: &[i64], length: usize) -> Option<Vec<usize>> {
    let places = indices.iter().map(|index| from_end(*index, length as i64));
    let positions = places.map(|place| usize::try_from(place).ok());
    positions
        .map(|position| position.filter(|position| *position < length))
        .collect()
}

/// Adds `updates` to zeros of shape `dims` at the positions `indices` along `axis`. Indices and updates have
/// the same shape.
fn scatter(tape: &mut Tape, indices: &str, updates: &str, dims: &[usize], axis: usize) -> String {
    let nothing = tape.emit.scalar(0.0);
    let zeros = tape.emit.expand(&nothing, dims);
    let attributes = vec![build::int("axis", axis as i64), build::text("reduction", "add")];
    tape.emit
        .node("ScatterElements", &[&zeros, indices, updates], attributes)
}

pub(super) fn gather_elements(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let axis = call.axis(call.int("axis", 0), input.rank())?;
    let indices = call.plain(1)?.to_owned();
    let x = tape.standard(&input);
    let attributes = vec![build::int("axis", axis as i64)];
    let y = tape.emit.node("GatherElements", &[&x, &indices], attributes);
    let output = call.output(TensorForm::Standard, y);
    let dims = input.shape().to_vec();
    tape.on_backward_to(input, &output, TensorForm::Standard, move |tape, dy| {
        scatter(tape, &indices, dy, &dims, axis)
    });
    Ok(output)
}

/// Only supports a single index per element. The newer PyTorch exporter emits lookups along the first axis in
/// this way.
pub(super) fn gather_nd(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let name = call.node.input_name(1).unwrap_or_default();
    let depth = call.source.shapes.dims(name).and_then(<[usize]>::last);
    if depth != Some(&1) || call.int("batch_dims", 0) != 0 {
        return Err(call.unsupported("only lookups along the first axis are supported"));
    }
    looked_up(tape, call, 0, vec![])
}

/// Replaces elements of the first operand with the third operand. The replaced elements have no gradient, and the
/// gradient of the third operand is gathered from their positions, which must be distinct. PyTorch's exporters emit
/// this operator for assignments to a part of a tensor, such as the zero biases of keys in Swin v2.
pub(super) fn scatter_nd(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    if let Some(reduction) = call
        .node
        .text("reduction")
        .filter(|reduction| *reduction != "none")
    {
        return Err(call.unsupported(format!("the reduction '{reduction}' is not supported")));
    }
    let data = call.value(0)?;
    let updates = call.value(2)?;
    let indices = call.plain(1)?.to_owned();
    let x = tape.standard(&data);
    let u = tape.standard(&updates);
    let y = tape.emit.node("ScatterND", &[&x, &indices, &u], vec![]);
    let output = call.output(TensorForm::Standard, y);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.standard(gradient);
        if data.is_differentiable() {
            let nothing = tape.emit.scalar(0.0);
            let zeros = tape.emit.expand(&nothing, updates.shape());
            let dx = tape.emit.node("ScatterND", &[&dy, &indices, &zeros], vec![]);
            tape.accumulate_tensor(&data, TensorForm::Standard, dx);
        }
        if updates.is_differentiable() {
            let du = tape.emit.node("GatherND", &[&dy, &indices], vec![]);
            tape.accumulate_tensor(&updates, TensorForm::Standard, du);
        }
    });
    Ok(output)
}
