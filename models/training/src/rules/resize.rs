//! Resize by linear maps along the axes.

use super::linear_map::{Map, mapped};
use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, Value};

pub(super) fn resize(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let input = call.value(0)?;
    let scales = scales(call, &input)?;
    let mut maps = Vec::new();
    let lengths = input.shape().iter().zip(&call.output_shape).zip(scales);
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

/// Returns the scales of all axes. The default is the ratio of the lengths.
fn scales(call: &NodeCall<'_>, input: &Value) -> Result<Vec<f64>, TrainingError> {
    let slot = if call.opset() < 11 { 1 } else { 2 };
    let stated = match call.node.input_name(slot) {
        Some(_) => call.constant_floats(slot)?.unwrap_or_default(),
        None => Vec::new(),
    };
    let ratios = input.shape().iter().zip(&call.output_shape);
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

/// Returns the inputs of the output at `place`, with weights, according to the definition of Resize in ONNX.
/// The kernel is centered at the source position. With `antialias`, a kernel for downscaling is wider by the
/// inverse scale.
fn sources(
    call: &NodeCall<'_>,
    place: usize,
    inputs: usize,
    outputs: usize,
    scale: f64,
) -> Result<Vec<(usize, f64)>, TrainingError> {
    let position = position(call, place as f64, inputs as f64, outputs as f64, scale)?;
    let smooths = call.int("antialias", 0) != 0;
    let stretch = if smooths { scale.min(1.0) } else { 1.0 };
    match call.node.text("mode").unwrap_or("nearest") {
        "nearest" if !smooths => Ok(vec![(inside(nearest(call, position), inputs), 1.0)]),
        "linear" => {
            let reach = 1.0 / stretch;
            Ok(around(call, inputs, position, reach, |distance| {
                1.0 - distance * stretch
            }))
        }
        "cubic" => {
            let a = call.float("cubic_coeff_a", -0.75);
            let reach = 2.0 / stretch;
            Ok(around(call, inputs, position, reach, |distance| {
                cubic(distance * stretch, a)
            }))
        }
        other => Err(call.unsupported(format!(
            "mode '{other}' is not supported, nor is 'nearest' with antialias"
        ))),
    }
}

/// Returns the inputs up to `reach` from the source position, with the weights of `kernel` by distance, divided
/// by the sum.
fn around(
    call: &NodeCall<'_>,
    inputs: usize,
    position: f64,
    reach: f64,
    kernel: impl Fn(f64) -> f64,
) -> Vec<(usize, f64)> {
    let places = (position - reach).ceil() as i64..=(position + reach).floor() as i64;
    let shares = places
        .filter(|place| call.int("exclude_outside", 0) == 0 || (0..inputs as i64).contains(place))
        .map(|place| {
            let share = kernel((place as f64 - position).abs());
            (inside(place as f64, inputs), share)
        });
    let shares: Vec<(usize, f64)> = shares.collect();
    let total: f64 = shares.iter().map(|(_, share)| share).sum();
    shares
        .into_iter()
        .map(|(place, share)| (place, share / total))
        .collect()
}

/// Kernel of a cubic interpolation.
fn cubic(x: f64, a: f64) -> f64 {
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    }
}

fn inside(place: f64, length: usize) -> usize {
    place.clamp(0.0, length.saturating_sub(1) as f64) as usize
}

fn nearest(call: &NodeCall<'_>, position: f64) -> f64 {
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
    call: &NodeCall<'_>,
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
        other => Err(call.unsupported(format!(
            "coordinate_transformation_mode '{other}' is not supported"
        ))),
    }
}
