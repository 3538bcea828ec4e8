//! Pad and Resize. Beyond padding with a constant, each is a linear map along each axis it changes: a product with a small constant
//! matrix, whose transpose carries the gradient back.

use crate::TrainingError;
use crate::call::Call;
use crate::tape::{Form, Tape, Value};

/// How the elements along one axis come of those before: `weights[out][in]`.
struct Map {
    axis: usize,
    inputs: usize,
    outputs: usize,
    weights: Vec<f64>,
}

impl Map {
    /// For each output, the inputs it is made of and their shares.
    fn new(axis: usize, inputs: usize, parts: Vec<Vec<(usize, f64)>>) -> Self {
        let mut weights = vec![0.0; inputs * parts.len()];
        for (row, parts) in weights.chunks_mut(inputs.max(1)).zip(&parts) {
            for (input, share) in parts {
                if let Some(weight) = row.get_mut(*input) {
                    *weight += share;
                }
            }
        }
        Self {
            axis,
            inputs,
            outputs: parts.len(),
            weights,
        }
    }

    /// `tensor` of shape `dims`, which becomes that of the result, mapped, or with `back` by the transpose.
    fn apply(&self, tape: &mut Tape, tensor: &str, dims: &mut [usize], back: bool) -> String {
        let (from, to) = if back {
            (self.outputs, self.inputs)
        } else {
            (self.inputs, self.outputs)
        };
        let flipped: Vec<f64> = (0..self.inputs)
            .flat_map(|column| self.weights.iter().skip(column).step_by(self.inputs.max(1)))
            .copied()
            .collect();
        let (forth, flipped) = if back {
            (&flipped, &self.weights)
        } else {
            (&self.weights, &flipped)
        };
        let before: usize = dims.iter().take(self.axis).product();
        let after: usize = dims.iter().skip(self.axis + 1).product();
        if let Some(length) = dims.get_mut(self.axis) {
            *length = to;
        }
        let mapped = if after == 1 {
            let rows = tape.emit.reshape(tensor, &[before, from]);
            let matrix = tape.emit.floats(&[from, to], flipped);
            tape.emit.node("MatMul", &[&rows, &matrix], vec![])
        } else {
            let columns = tape.emit.reshape(tensor, &[before, from, after]);
            let matrix = tape.emit.floats(&[to, from], forth);
            tape.emit.node("MatMul", &[&matrix, &columns], vec![])
        };
        tape.emit.reshape(&mapped, dims)
    }
}

/// Emits the node as one map after another.
fn mapped(tape: &mut Tape, call: &Call<'_>, input: Value, maps: Vec<Map>) -> Value {
    if maps.is_empty() {
        return input;
    }
    let mut dims = input.shape().to_vec();
    let mut result = tape.standard(&input);
    for map in &maps {
        result = map.apply(tape, &result, &mut dims, false);
    }
    let output = call.output(Form::Standard, result);
    tape.on_backward_to(input, &output, Form::Standard, move |tape, dy| {
        let mut dx = dy.to_owned();
        for map in maps.iter().rev() {
            dx = map.apply(tape, &dx, &mut dims, true);
        }
        dx
    });
    output
}

pub(super) fn pad(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let pads = paddings(call, input.rank())?;
    let mode = call.node.text("mode").unwrap_or("constant");
    if mode == "constant" {
        return constant_pad(tape, call, input, &pads);
    }
    let sides = pads.iter().take(input.rank()).zip(pads.iter().skip(input.rank()));
    let mut maps = Vec::new();
    for (axis, (length, (before, after))) in input.shape().iter().zip(sides).enumerate() {
        if (*before, *after) == (0, 0) {
            continue;
        }
        let places = -before..*length as i64 + after;
        let parts = places.map(|place| mirrored(mode, place, *length as i64).map(|place| vec![(place, 1.0)]));
        let parts = parts.collect::<Option<Vec<_>>>();
        let parts =
            parts.ok_or_else(|| call.unsupported(format!("it pads an axis of {length} by '{mode}'")))?;
        maps.push(Map::new(axis, *length, parts));
    }
    Ok(mapped(tape, call, input, maps))
}

/// Where what lies at `place` outside an axis of `length` is taken from.
fn mirrored(mode: &str, place: i64, length: i64) -> Option<usize> {
    let last = length - 1;
    let inside = match mode {
        "reflect" if place < 0 => -place,
        "reflect" if place > last => 2 * last - place,
        "reflect" => place,
        "edge" => place.clamp(0, last.max(0)),
        "wrap" => place.rem_euclid(length.max(1)),
        _ => return None,
    };
    usize::try_from(inside)
        .ok()
        .filter(|place| *place <= last.unsigned_abs() as usize)
}

fn constant_pad(
    tape: &mut Tape,
    call: &Call<'_>,
    input: Value,
    pads: &[i64],
) -> Result<Value, TrainingError> {
    let filling = if call.opset() < 11 {
        call.float("value", 0.0)
    } else {
        let stored = call.constant_floats(2)?;
        stored.and_then(|values| values.first().copied()).unwrap_or(0.0)
    };
    let x = tape.standard(&input);
    let (widths, filling) = (tape.emit.ints(pads.iter().copied()), tape.emit.scalar(filling));
    let result = tape.emit.node("Pad", &[&x, &widths, &filling], vec![]);
    let output = call.output(Form::Standard, result);
    let widths = tape.emit.ints(pads.iter().map(|width| -width));
    tape.on_backward_to(input, &output, Form::Standard, move |tape, dy| {
        tape.emit.node("Pad", &[dy, &widths], vec![])
    });
    Ok(output)
}

/// What is added before and after each of `rank` axes: all beginnings, then all ends.
fn paddings(call: &Call<'_>, rank: usize) -> Result<Vec<i64>, TrainingError> {
    let stated = match call.node.ints("pads") {
        Some(pads) => pads.to_vec(),
        None => call.constant_ints(1)?.unwrap_or_default(),
    };
    let axes: Vec<usize> = match call.constant_ints(3)? {
        Some(axes) => axes
            .iter()
            .map(|axis| call.axis(*axis, rank))
            .collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    if stated.len() != 2 * axes.len() {
        return Err(call.unsupported(format!("its pads {stated:?} do not fit {} axes", axes.len())));
    }
    let mut pads = vec![0; 2 * rank];
    let (begins, ends) = stated.split_at(axes.len());
    for (axis, (begin, end)) in axes.iter().zip(begins.iter().zip(ends)) {
        if let Some(before) = pads.get_mut(*axis) {
            *before = *begin;
        }
        if let Some(after) = pads.get_mut(axis + rank) {
            *after = *end;
        }
    }
    Ok(pads)
}

pub(super) fn resize(tape: &mut Tape, call: &Call<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let scales = scales(call, &input)?;
    let mut maps = Vec::new();
    let lengths = input.shape().iter().zip(call.output_shape()).zip(scales);
    for (axis, ((inputs, outputs), scale)) in lengths.enumerate() {
        if inputs == outputs && scale == 1.0 {
            continue;
        }
        let parts = (0..*outputs)
            .map(|place| sources(call, place, *inputs, *outputs, scale))
            .collect::<Result<Vec<_>, _>>()?;
        maps.push(Map::new(axis, *inputs, parts));
    }
    Ok(mapped(tape, call, input, maps))
}

/// By how much each axis grows: as the node says where it does, else the ratio of the lengths.
fn scales(call: &Call<'_>, input: &Value) -> Result<Vec<f64>, TrainingError> {
    let slot = if call.opset() < 11 { 1 } else { 2 };
    let stated = match call.node.input_name(slot) {
        Some(_) => call.constant_floats(slot)?.unwrap_or_default(),
        None => Vec::new(),
    };
    let ratios = input.shape().iter().zip(call.output_shape());
    let mut scales: Vec<f64> = ratios
        .map(|(from, to)| *to as f64 / (*from).max(1) as f64)
        .collect();
    let axes = call.node.ints("axes").unwrap_or_default();
    for (place, scale) in stated.into_iter().enumerate() {
        let axis = match axes.get(place) {
            Some(axis) => call.axis(*axis, input.rank())?,
            None => place,
        };
        if let Some(known) = scales.get_mut(axis) {
            *known = scale;
        }
    }
    Ok(scales)
}

/// The inputs that the output at `place` is made of, and their shares (ONNX's definition of Resize).
fn sources(
    call: &Call<'_>,
    place: usize,
    inputs: usize,
    outputs: usize,
    scale: f64,
) -> Result<Vec<(usize, f64)>, TrainingError> {
    let mode = call.node.text("mode").unwrap_or("nearest");
    if call.int("antialias", 0) != 0 || call.int("exclude_outside", 0) != 0 {
        return Err(call.unsupported("it smooths, or leaves out what lies outside"));
    }
    let position = position(call, place as f64, inputs as f64, outputs as f64, scale)?;
    let inside = |place: f64| place.clamp(0.0, inputs.saturating_sub(1) as f64) as usize;
    let floor = position.floor();
    let t = position - floor;
    let around = |shares: &[f64], first: f64| {
        let places = shares.iter().enumerate();
        places
            .map(|(step, share)| (inside(first + step as f64), *share))
            .collect()
    };
    match mode {
        "nearest" => Ok(vec![(inside(nearest(call, position)), 1.0)]),
        "linear" => Ok(around(&[1.0 - t, t], floor)),
        "cubic" => {
            let a = call.float("cubic_coeff_a", -0.75);
            let near = |x: f64| ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
            let far = |x: f64| ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
            Ok(around(
                &[far(1.0 + t), near(t), near(1.0 - t), far(2.0 - t)],
                floor - 1.0,
            ))
        }
        other => Err(call.unsupported(format!("its mode is '{other}'"))),
    }
}

fn nearest(call: &Call<'_>, position: f64) -> f64 {
    let rounding = if call.opset() < 11 {
        "floor"
    } else {
        "round_prefer_floor"
    };
    match call.node.text("nearest_mode").unwrap_or(rounding) {
        "floor" => position.floor(),
        "ceil" => position.ceil(),
        "round_prefer_ceil" => (position + 0.5).floor(),
        _ => (position - 0.5).ceil(),
    }
}

fn position(
    call: &Call<'_>,
    place: f64,
    inputs: f64,
    outputs: f64,
    scale: f64,
) -> Result<f64, TrainingError> {
    let plain = if call.opset() < 11 {
        "asymmetric"
    } else {
        "half_pixel"
    };
    let half = (place + 0.5) / scale - 0.5;
    match call.node.text("coordinate_transformation_mode").unwrap_or(plain) {
        "half_pixel" => Ok(half),
        "pytorch_half_pixel" => Ok(if outputs > 1.0 { half } else { 0.0 }),
        "asymmetric" => Ok(place / scale),
        "align_corners" if outputs > 1.0 => Ok(place * (inputs - 1.0) / (outputs - 1.0)),
        "align_corners" => Ok(0.0),
        other => Err(call.unsupported(format!("its coordinates are '{other}'"))),
    }
}
