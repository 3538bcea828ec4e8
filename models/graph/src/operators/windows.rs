//! Convolutions and pools: operators that slide a window over the axes after batch and channels.

use super::normalization::on_first_axis;
use super::operator::Effort::Pooling;
use super::operator::HeadPart::{Layer, Tail};
use super::operator::Operator;
use crate::onnx::{NodeProto, data_type};
use crate::values::{Context, Growth, InferredValue, RuleResult, SLIDES, Unresolved, Why, mismatch, signed};

pub(super) const OPERATORS: &[Operator] = &[
    pool("AveragePool", 1).effort(Pooling).head(Tail),
    Operator::new("Conv", 1, convolution)
        .rows(on_first_axis)
        .work(|sizes| sizes.output() * sizes.input(1) / sizes.axis(1, 0).max(1.0))
        .growth(convolution_growth)
        .weights(1..3)
        .numbers(true)
        .head(Layer),
    Operator::new("ConvTranspose", 1, transposed_convolution)
        .rows(on_first_axis)
        .work(|sizes| sizes.input(0) * sizes.input(1) / sizes.axis(1, 0).max(1.0))
        .growth(convolution_growth)
        .weights(1..3)
        .numbers(true),
    global_pool("GlobalAveragePool", 1).effort(Pooling).head(Tail),
    global_pool("GlobalLpPool", 1),
    global_pool("GlobalMaxPool", 1),
    pool("LpPool", 1),
    pool("MaxPool", 1).effort(Pooling),
];

const fn pool(name: &'static str, since: i64) -> Operator {
    Operator::new(name, since, pooled)
        .rows(on_first_axis)
        .taps(window_places)
        .growth(|growth| growth.batch_first())
}

const fn global_pool(name: &'static str, since: i64) -> Operator {
    Operator::new(name, since, pooled_globally).rows(on_first_axis)
}

/// Returns the number of positions in a pool's window.
#[allow(clippy::cast_precision_loss)]
fn window_places(node: &NodeProto) -> f64 {
    let kernel = node.ints("kernel_shape").unwrap_or_default();
    kernel.iter().map(|&size| size as f64).product()
}

/// Window along one axis.
struct AxisWindow {
    kernel: usize,
    stride: usize,
    dilation: usize,
    /// Padding before and after. Negative padding crops.
    pads: (i64, i64),
}

/// Returns `values[axis]` of an attribute, or `default` if the attribute is omitted.
fn setting(context: &Context<'_>, name: &str, axis: usize, default: i64) -> RuleResult<i64> {
    match context.node.ints(name) {
        None | Some([]) => Ok(default),
        Some(values) => values
            .get(axis)
            .copied()
            .map_or_else(|| mismatch(format!("missing values in {name} {values:?}")), Ok),
    }
}

fn positive(context: &Context<'_>, name: &str, axis: usize) -> RuleResult<usize> {
    let value = setting(context, name, axis, 1)?;
    match usize::try_from(value) {
        Ok(value) if value > 0 => Ok(value),
        _ => mismatch(format!("{name} of {value}")),
    }
}

fn window(context: &Context<'_>, axis: usize, axes: usize, kernel: usize) -> RuleResult<AxisWindow> {
    let pads = (
        setting(context, "pads", axis, 0)?,
        setting(context, "pads", axis + axes, 0)?,
    );
    let stride = positive(context, "strides", axis)?;
    let dilation = positive(context, "dilations", axis)?;
    Ok(AxisWindow {
        kernel,
        stride,
        dilation,
        pads,
    })
}

impl AxisWindow {
    fn reach(&self) -> i64 {
        signed(self.dilation)
            .saturating_mul(signed(self.kernel).saturating_sub(1))
            .saturating_add(1)
    }

    /// Returns the number of window positions along an axis of `size`. If `round_up` is set, the last window
    /// can extend past the end.
    fn places(&self, size: usize, auto_pad: &str, round_up: bool) -> RuleResult<usize> {
        if auto_pad.starts_with("SAME") {
            return Ok(size.div_ceil(self.stride));
        }
        let pads = if auto_pad == "VALID" { (0, 0) } else { self.pads };
        let room = signed(size)
            .saturating_add(pads.0)
            .saturating_add(pads.1)
            .saturating_sub(self.reach());
        if room < 0 {
            return mismatch(format!(
                "a window of {} does not fit an axis of {size}",
                self.reach()
            ));
        }
        let stride = signed(self.stride);
        let mut places = (room / stride).saturating_add(1);
        // A window that extends past the end must start inside the input or the left padding.
        if round_up
            && room % stride != 0
            && places.saturating_mul(stride) < signed(size).saturating_add(pads.0)
        {
            places = places.saturating_add(1);
        }
        usize::try_from(places).or_else(|_| mismatch("the number of window positions overflows"))
    }
}

/// Splits `[batch, channels, ...]`.
fn parts(dims: &[usize]) -> RuleResult<(usize, usize, &[usize])> {
    match dims {
        [batch, channels, spatial @ ..] => Ok((*batch, *channels, spatial)),
        _ => mismatch(format!("input {dims:?} has no channels")),
    }
}

fn group(context: &Context<'_>) -> RuleResult<usize> {
    match usize::try_from(context.node.int("group").unwrap_or(1)) {
        Ok(group) if group > 0 => Ok(group),
        _ => mismatch("group must be positive"),
    }
}

fn misfit<T>(context: &Context<'_>) -> RuleResult<T> {
    let input = context.dims(0)?;
    let weight = context.dims(1)?;
    mismatch(format!("input {input:?}, weight {weight:?}"))
}

/// `Conv`: input `[n, c, ...]`, weight `[m, c / group, ...]`.
fn convolution(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let (batch, channels, spatial) = parts(context.dims(0)?)?;
    let (filters, depth, kernel) = parts(context.dims(1)?)?;
    if depth.checked_mul(group(context)?) != Some(channels) || kernel.len() != spatial.len() {
        return misfit(context);
    }
    let auto_pad = context.node.text("auto_pad").unwrap_or("NOTSET");
    let mut dims = vec![batch, filters];
    for (axis, (&size, &kernel)) in spatial.iter().zip(kernel).enumerate() {
        dims.push(window(context, axis, spatial.len(), kernel)?.places(size, auto_pad, false)?);
    }
    context.output(dims)
}

/// `ConvTranspose`: input `[n, c, ...]`, weight `[c, m / group, ...]`.
fn transposed_convolution(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let (batch, channels, spatial) = parts(context.dims(0)?)?;
    let (depth, filters, kernel) = parts(context.dims(1)?)?;
    if depth != channels || kernel.len() != spatial.len() {
        return misfit(context);
    }
    if context.node.text("auto_pad").is_some_and(|pad| pad != "NOTSET")
        || context.node.ints("output_shape").is_some()
    {
        return Err(Unresolved::Unknown);
    }
    let mut dims = vec![batch, filters.saturating_mul(group(context)?)];
    for (axis, (&size, &kernel)) in spatial.iter().zip(kernel).enumerate() {
        let window = window(context, axis, spatial.len(), kernel)?;
        let extra = setting(context, "output_padding", axis, 0)?;
        let steps = signed(size)
            .saturating_sub(1)
            .saturating_mul(signed(window.stride));
        let out = steps.saturating_add(extra).saturating_add(window.reach());
        let out = out.saturating_sub(window.pads.0).saturating_sub(window.pads.1);
        dims.push(usize::try_from(out).or_else(|_| mismatch("the output would be empty"))?);
    }
    context.output(dims)
}

fn convolution_growth(growth: &Growth<'_>) -> Result<(), Why> {
    growth.batch_first()?;
    if growth.dims_differ(1) {
        Err(SLIDES)
    } else {
        Ok(())
    }
}

/// Infers the outputs of `MaxPool` (values and indices), `AveragePool` and `LpPool`.
fn pooled(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let (batch, channels, spatial) = parts(context.dims(0)?)?;
    let auto_pad = context.node.text("auto_pad").unwrap_or("NOTSET");
    let round_up = context.node.int("ceil_mode") == Some(1);
    let mut dims = vec![batch, channels];
    for (axis, &size) in spatial.iter().enumerate() {
        let kernel = positive(context, "kernel_shape", axis)?;
        dims.push(window(context, axis, spatial.len(), kernel)?.places(size, auto_pad, round_up)?);
    }
    Ok(vec![
        InferredValue::with_shape(context.data_type(0), dims.clone()),
        InferredValue::with_shape(data_type::INT64, dims),
    ])
}

/// Returns a single value per channel. All axes after the channels get the size 1.
fn pooled_globally(context: &Context<'_>) -> RuleResult<Vec<InferredValue>> {
    let (batch, channels, spatial) = parts(context.dims(0)?)?;
    let dims = [batch, channels]
        .into_iter()
        .chain(spatial.iter().map(|_| 1))
        .collect();
    context.output(dims)
}
