//! Add, Sub, Mul and Div with broadcasting.

use crate::TrainingError;
use crate::call::NodeCall;
use crate::tape::{Tape, TensorForm, Value};

/// Broadcasting of an operand to the shape of the result.
#[derive(Clone, Copy, PartialEq)]
enum Broadcast {
    Same,
    /// A number per channel.
    Channels,
    /// A number per image and channel, for example in squeeze-and-excitation.
    Images,
    Scalar,
    Other,
}

fn broadcast(operand: &[usize], full: &[usize]) -> Broadcast {
    let leading = full.len().saturating_sub(operand.len());
    let aligned = std::iter::repeat_n(&1, leading).chain(operand);
    if operand == full {
        Broadcast::Same
    } else if operand.iter().all(|dim| *dim == 1) {
        Broadcast::Scalar
    } else if aligned
        .zip(full)
        .enumerate()
        .all(|(axis, (dim, full))| *dim == if axis == 1 { *full } else { 1 })
    {
        Broadcast::Channels
    } else if operand.len() == full.len() && is_per_image(operand, full) {
        Broadcast::Images
    } else {
        Broadcast::Other
    }
}

fn is_per_image(operand: &[usize], full: &[usize]) -> bool {
    let (own, places) = operand.split_at(operand.len().min(2));
    full.starts_with(own) && places.iter().all(|dim| *dim == 1)
}

/// Operands of a binary node in a common form.
#[derive(Clone)]
struct BinaryOperands {
    left: Value,
    right: Value,
    form: TensorForm,
    full: Vec<usize>,
    /// Tensors of `left` and `right`.
    l: String,
    r: String,
}

impl BinaryOperands {
    fn new(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Self, TrainingError> {
        let left = call.value(0)?;
        let right = call.value(1)?;
        let full = call.output_shape.clone();
        let form = common_form(tape, &[&left, &right], &full);
        let l = operand(tape, &left, &full, form);
        let r = operand(tape, &right, &full, form);
        Ok(Self {
            left,
            right,
            form,
            full,
            l,
            r,
        })
    }
}

/// Returns a common form for operands with broadcasting to the shape `full`. Rows support equal shapes and
/// broadcasting by channel, by image or from scalars.
pub(super) fn common_form(tape: &Tape, values: &[&Value], full: &[usize]) -> TensorForm {
    let stretches = values
        .iter()
        .any(|value| broadcast(value.shape(), full) == Broadcast::Other);
    if full.len() <= 2 || stretches {
        TensorForm::Standard
    } else {
        tape.preferred_form(values)
    }
}

impl BinaryOperands {
    /// Emits the sum if one operand is a matrix product and the other a bias of the columns.
    fn biased(&self, tape: &mut Tape) -> Option<String> {
        let full = self.full.as_slice();
        let columns = *full.last()?;
        let left = self.left.shape();
        let right = self.right.shape();
        match self.form {
            TensorForm::Standard if left == full && right == [columns] => {
                tape.emit.biased(&self.l, &self.r, columns)
            }
            TensorForm::Standard if right == full && left == [columns] => {
                tape.emit.biased(&self.r, &self.l, columns)
            }
            _ => None,
        }
    }
}

/// Returns `value` as a tensor that broadcasts to the result in `form`.
pub(super) fn operand(tape: &mut Tape, value: &Value, full: &[usize], form: TensorForm) -> String {
    if form == TensorForm::Standard || broadcast(value.shape(), full) == Broadcast::Same {
        return tape.tensor(value, form);
    }
    let standard = tape.standard(value);
    if broadcast(value.shape(), full) == Broadcast::Images {
        let [images, positions, channels] = apart(full);
        let one = tape.emit.reshape(&standard, &[images, 1, channels]);
        let all = tape.emit.expand(&one, &[images, positions, channels]);
        return tape.emit.reshape(&all, &[images * positions, channels]);
    }
    tape.emit.reshape(&standard, &[value.elements()])
}

/// Returns the numbers of images, positions and channels in a shape.
fn apart(full: &[usize]) -> [usize; 3] {
    let [images, channels] = [0, 1].map(|axis| full.get(axis).copied().unwrap_or(1));
    [images, full.iter().skip(2).product(), channels]
}

/// Accumulates into `value` a gradient in `tensor` with the shape of the result and the form `form`.
pub(super) fn accumulate(tape: &mut Tape, value: &Value, tensor: String, full: &[usize], form: TensorForm) {
    let reduced = match (form, broadcast(value.shape(), full)) {
        (_, Broadcast::Same) => return tape.accumulate_tensor(value, form, tensor),
        (TensorForm::Standard, _) | (_, Broadcast::Other) => reduce_to(tape, &tensor, full, value.shape()),
        (_, Broadcast::Channels) => {
            let [images, positions, _] = apart(full);
            tape.emit.sum_of_rows(&tensor, images * positions)
        }
        (_, Broadcast::Images) => {
            let by_image = tape.emit.reshape(&tensor, &apart(full));
            tape.emit.sum(&by_image, [1], false)
        }
        (_, Broadcast::Scalar) => tape.emit.sum(&tensor, [0, 1], false),
    };
    let reduced = tape.emit.reshape(&reduced, value.shape());
    tape.accumulate_tensor(value, TensorForm::Standard, reduced);
}

/// Sums `tensor` of shape `from` over the broadcast axes of a tensor of shape `to`.
pub(super) fn reduce_to(tape: &mut Tape, tensor: &str, from: &[usize], to: &[usize]) -> String {
    if from == to {
        return tensor.to_owned();
    }
    let leading = from.len().saturating_sub(to.len());
    let aligned = from.iter().skip(leading).zip(to).enumerate();
    let axes: Vec<usize> = (0..leading)
        .chain(aligned.filter_map(|(axis, (from, to))| (*to == 1 && *from != 1).then_some(axis + leading)))
        .collect();
    let outermost = axes.iter().copied().eq(0..axes.len());
    let reduced = if axes.is_empty() {
        tensor.to_owned()
    } else if outermost && axes.len() < from.len() {
        let (rows, columns) = from.split_at(axes.len());
        let rows = rows.iter().product();
        let columns = columns.iter().product();
        let matrix = tape.emit.reshape(tensor, &[rows, columns]);
        tape.emit.sum_of_rows(&matrix, rows)
    } else {
        tape.emit.sum(tensor, axes, false)
    };
    tape.emit.reshape(&reduced, to)
}

pub(super) fn add(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let operands = BinaryOperands::new(tape, call)?;
    let sum = operands
        .biased(tape)
        .unwrap_or_else(|| tape.emit.add(&operands.l, &operands.r));
    let output = call.output(operands.form, sum);
    tape.on_backward(&output, move |tape, gradient| {
        for value in [&operands.left, &operands.right] {
            if value.shape() == operands.full.as_slice() {
                tape.accumulate(value, gradient.clone());
            } else if value.is_differentiable() {
                let dy = tape.tensor(gradient, operands.form);
                accumulate(tape, value, dy, &operands.full, operands.form);
            }
        }
    });
    Ok(output)
}

/// Adds a tensor that broadcasts to `left`.
pub(super) fn sum(tape: &mut Tape, left: &Value, right: &Value) -> Value {
    let l = tape.standard(left);
    let r = tape.standard(right);
    let sum = tape.emit.add(&l, &r);
    let output = Value::computed(left.shape(), sum, &[left, right]);
    let left = left.clone();
    let right = right.clone();
    tape.on_backward(&output, move |tape, gradient| {
        tape.accumulate(&left, gradient.clone());
        if right.is_differentiable() {
            let dy = tape.standard(gradient);
            accumulate(tape, &right, dy, gradient.shape(), TensorForm::Standard);
        }
    });
    output
}

pub(super) fn sub(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let operands = BinaryOperands::new(tape, call)?;
    let difference = tape.emit.sub(&operands.l, &operands.r);
    let output = call.output(operands.form, difference);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.tensor(gradient, operands.form);
        if operands.left.is_differentiable() {
            accumulate(tape, &operands.left, dy.clone(), &operands.full, operands.form);
        }
        if operands.right.is_differentiable() {
            let negative = tape.emit.node("Neg", &[&dy], vec![]);
            accumulate(tape, &operands.right, negative, &operands.full, operands.form);
        }
    });
    Ok(output)
}

pub(super) fn mul(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let operands = BinaryOperands::new(tape, call)?;
    let result = tape.emit.mul(&operands.l, &operands.r);
    let output = call.output(operands.form, result);
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.tensor(gradient, operands.form);
        for (value, other) in [(&operands.left, &operands.r), (&operands.right, &operands.l)] {
            if value.is_differentiable() {
                let product = tape.emit.mul(&dy, other);
                accumulate(tape, value, product, &operands.full, operands.form);
            }
        }
    });
    Ok(output)
}

pub(super) fn div(tape: &mut Tape, call: &NodeCall<'_>) -> Result<Value, TrainingError> {
    let operands = BinaryOperands::new(tape, call)?;
    let quotient = tape.emit.div(&operands.l, &operands.r);
    let output = call.output(operands.form, quotient.clone());
    tape.on_backward(&output, move |tape, gradient| {
        let dy = tape.tensor(gradient, operands.form);
        let over = tape.emit.div(&dy, &operands.r);
        if operands.right.is_differentiable() {
            let product = tape.emit.mul(&over, &quotient);
            let negative = tape.emit.node("Neg", &[&product], vec![]);
            accumulate(tape, &operands.right, negative, &operands.full, operands.form);
        }
        if operands.left.is_differentiable() {
            accumulate(tape, &operands.left, over, &operands.full, operands.form);
        }
    });
    Ok(output)
}
