use crate::emitter::{Emitter, Float};
use std::cell::RefCell;
use std::rc::Rc;

/// Memory layout of a tensor.
///
/// ONNX stores channels first, `[n, c, h, w]`. A convolution as a single matrix product, in both directions,
/// needs a row per position with channels last, `[n·h·w, c]`. A value is stored in the form in which it was
/// computed and is converted on demand, once per form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TensorForm {
    /// The layout in ONNX.
    Standard,
    /// Matrix `[n·positions, channels]`.
    Rows,
    /// Matrix `[positions, n·channels]`, used for kernels tap by tap.
    Taps,
}

/// Tensor of the suffix or a gradient. A value consists of the ONNX shape and the emitted tensors in all
/// forms so far.
#[derive(Debug, Clone)]
pub(crate) struct Value(Rc<ValueState>);

#[derive(Debug)]
struct ValueState {
    shape: Vec<usize>,
    differentiable: bool,
    standard: RefCell<Option<String>>,
    rows: RefCell<Option<String>>,
    taps: RefCell<Option<String>>,
    gradients: RefCell<Vec<Value>>,
}

impl Value {
    /// Creates a value with the ONNX shape `shape`, stored in `tensor` in `form`.
    pub(crate) fn new(shape: &[usize], form: TensorForm, tensor: String, differentiable: bool) -> Self {
        let [standard, rows, taps] = [TensorForm::Standard, TensorForm::Rows, TensorForm::Taps]
            .map(|held| RefCell::new((form == held).then(|| tensor.clone())));
        Self(Rc::new(ValueState {
            shape: shape.to_vec(),
            differentiable,
            standard,
            rows,
            taps,
            gradients: RefCell::default(),
        }))
    }

    /// Creates a value computed from `operands`, in the standard form. It needs a gradient if an operand
    /// does.
    pub(crate) fn computed(shape: &[usize], tensor: String, operands: &[&Value]) -> Self {
        let differentiable = operands.iter().any(|operand| operand.is_differentiable());
        Self::new(shape, TensorForm::Standard, tensor, differentiable)
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    pub(crate) fn rank(&self) -> usize {
        self.0.shape.len()
    }

    pub(crate) fn elements(&self) -> usize {
        self.0.shape.iter().product()
    }

    pub(crate) fn batch(&self) -> usize {
        self.0.shape.first().copied().unwrap_or(1)
    }

    pub(crate) fn channels(&self) -> usize {
        self.0.shape.get(1).copied().unwrap_or(1)
    }

    /// Lengths of the axes after batch and channels.
    pub(crate) fn spatial(&self) -> &[usize] {
        self.0.shape.get(2..).unwrap_or_default()
    }

    pub(crate) fn positions(&self) -> usize {
        self.spatial().iter().product()
    }

    /// Returns true if the value needs a gradient: for parameters and all values computed from parameters.
    pub(crate) fn is_differentiable(&self) -> bool {
        self.0.differentiable
    }

    fn has_rows(&self) -> bool {
        self.0.rows.borrow().is_some()
    }

    fn has_taps(&self) -> bool {
        self.0.taps.borrow().is_some()
    }

    /// Returns true if moving channels last does not move any elements.
    fn forms_coincide(&self) -> bool {
        self.positions() == 1 || self.channels() == 1
    }
}

/// Emits the backward pass of a node, given the gradients of the outputs.
type Backward = Box<dyn FnOnce(&mut Tape, &[Value])>;

struct TapeEntry {
    outputs: Vec<Value>,
    backward: Backward,
}

/// Records the forward pass, so that the backward pass can be emitted in reverse.
pub(crate) struct Tape {
    pub(crate) emit: Emitter,
    /// Moving statistics of BatchNormalization: the name in the suffix and the tensor after the step.
    pub(crate) statistics: Vec<(String, String)>,
    entries: Vec<TapeEntry>,
}

impl Tape {
    pub(crate) fn new(float: Float) -> Self {
        Self {
            emit: Emitter::new(float),
            statistics: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Calls `write` with shapes hidden from ONNX Runtime, so that it frees the large tensors emitted there
    /// after the last use.
    pub(crate) fn with_hidden_shapes<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        self.emit.set_shapes_hidden(true);
        let written = write(self);
        self.emit.set_shapes_hidden(false);
        written
    }

    /// Returns the form that avoids conversions in an operator that accepts any form: rows if an operand has
    /// them.
    pub(crate) fn preferred_form(&self, values: &[&Value]) -> TensorForm {
        if values.iter().any(|value| value.has_rows()) {
            TensorForm::Rows
        } else {
            TensorForm::Standard
        }
    }

    /// Returns the tensor with `value` in `form`, converting if necessary.
    pub(crate) fn tensor(&mut self, value: &Value, form: TensorForm) -> String {
        match form {
            TensorForm::Standard => self.standard(value),
            TensorForm::Rows => self.rows(value),
            TensorForm::Taps => self.taps(value),
        }
    }

    /// Returns the tensor with `value` in the layout of ONNX.
    pub(crate) fn standard(&mut self, value: &Value) -> String {
        if let Some(tensor) = &*value.0.standard.borrow() {
            return tensor.clone();
        }
        let rows = if value.has_rows() || value.has_taps() {
            self.rows(value)
        } else {
            String::new()
        };
        let tensor = if value.forms_coincide() {
            self.emit.reshape(&rows, value.shape())
        } else {
            let mut dims = vec![value.batch()];
            dims.extend(value.spatial());
            dims.push(value.channels());
            let last = self.emit.reshape(&rows, &dims);
            let rank = value.rank();
            self.emit
                .transpose(&last, [0, rank - 1].into_iter().chain(1..rank - 1))
        };
        *value.0.standard.borrow_mut() = Some(tensor.clone());
        tensor
    }

    /// Returns the tensor with `value` as `[n·positions, channels]`.
    pub(crate) fn rows(&mut self, value: &Value) -> String {
        if let Some(tensor) = &*value.0.rows.borrow() {
            return tensor.clone();
        }
        let outer = value.batch();
        let positions = value.positions();
        let channels = value.channels();
        let taps = value.0.taps.borrow().clone();
        if let Some(taps) = taps {
            let tensor = self.swap(&taps, [positions, outer, channels], [outer * positions, channels]);
            *value.0.rows.borrow_mut() = Some(tensor.clone());
            return tensor;
        }
        let standard = self.standard(value);
        let last = if value.forms_coincide() {
            standard
        } else {
            self.emit
                .transpose(&standard, std::iter::once(0).chain(2..value.rank()).chain([1]))
        };
        let tensor = self.emit.reshape(&last, &[outer * positions, channels]);
        *value.0.rows.borrow_mut() = Some(tensor.clone());
        tensor
    }

    /// Returns the tensor with `value` as `[positions, n·channels]`.
    pub(crate) fn taps(&mut self, value: &Value) -> String {
        if let Some(tensor) = &*value.0.taps.borrow() {
            return tensor.clone();
        }
        let rows = self.rows(value);
        let outer = value.batch();
        let positions = value.positions();
        let channels = value.channels();
        let tensor = self.swap(&rows, [outer, positions, channels], [positions, outer * channels]);
        *value.0.taps.borrow_mut() = Some(tensor.clone());
        tensor
    }

    /// Reshapes `tensor` to `dims`, swaps the first two axes, and reshapes the result to `matrix`.
    pub(crate) fn swap(&mut self, tensor: &str, dims: [usize; 3], matrix: [usize; 2]) -> String {
        let apart = self.emit.reshape(tensor, &dims);
        let swapped = self.emit.transpose(&apart, [1, 0, 2]);
        self.emit.reshape(&swapped, &matrix)
    }

    /// Reshapes a vector `[c]` with an element per channel, so that it broadcasts to a value of rank `rank`
    /// in `form`.
    pub(crate) fn per_channel(
        &mut self,
        vector: &str,
        channels: usize,
        rank: usize,
        form: TensorForm,
    ) -> String {
        if form == TensorForm::Rows || rank <= 2 {
            return vector.to_owned();
        }
        let mut dims = vec![1; rank - 1];
        if let Some(first) = dims.first_mut() {
            *first = channels;
        }
        self.emit.reshape(vector, &dims)
    }

    /// Sums `tensor` over all axes except for the channels. The ONNX shape is the shape of `like`, and the
    /// form is `form`.
    pub(crate) fn sum_per_channel(&mut self, tensor: &str, like: &Value, form: TensorForm) -> String {
        match form {
            TensorForm::Rows => self.emit.sum_of_rows(tensor, like.batch() * like.positions()),
            TensorForm::Standard | TensorForm::Taps => {
                let axes = std::iter::once(0).chain(2..like.rank());
                self.emit.sum(tensor, axes, false)
            }
        }
    }

    /// Records the backward pass of a node with the output `output`.
    pub(crate) fn on_backward(&mut self, output: &Value, backward: impl FnOnce(&mut Self, &Value) + 'static) {
        self.on_backward_of_many(std::slice::from_ref(output), |tape, gradients| {
            if let Some(gradient) = gradients.first() {
                backward(tape, gradient);
            }
        });
    }

    /// Records the backward pass of a node with multiple outputs. Unused outputs have the gradient zero.
    pub(crate) fn on_backward_of_many(
        &mut self,
        outputs: &[Value],
        backward: impl FnOnce(&mut Self, &[Value]) + 'static,
    ) {
        if outputs.iter().any(Value::is_differentiable) {
            self.entries.push(TapeEntry {
                outputs: outputs.to_vec(),
                backward: Box::new(backward),
            });
        }
    }

    /// Records the backward pass of a node with a single operand. `backward` turns the gradient of the output
    /// into the gradient of the operand, both in `form`.
    pub(crate) fn on_backward_to(
        &mut self,
        operand: Value,
        output: &Value,
        form: TensorForm,
        backward: impl FnOnce(&mut Self, &str) -> String + 'static,
    ) {
        self.on_backward(output, move |tape, gradient| {
            let dy = tape.tensor(gradient, form);
            let dx = backward(tape, &dy);
            tape.accumulate_tensor(&operand, form, dx);
        });
    }

    /// Adds `gradient` to the gradient of `value`, if the value needs a gradient.
    pub(crate) fn accumulate(&mut self, value: &Value, gradient: Value) {
        if value.is_differentiable() {
            value.0.gradients.borrow_mut().push(gradient);
        }
    }

    /// Like [`Self::accumulate`], for a gradient in `tensor` in `form`.
    pub(crate) fn accumulate_tensor(&mut self, value: &Value, form: TensorForm, tensor: String) {
        self.accumulate(value, Value::new(value.shape(), form, tensor, false));
    }

    /// Returns the gradient of `value`, the sum of all gradients accumulated so far, or `None` without any.
    pub(crate) fn gradient(&mut self, value: &Value) -> Option<Value> {
        let parts = std::mem::take(&mut *value.0.gradients.borrow_mut());
        let mut parts = parts.into_iter();
        let mut total = parts.next()?;
        for part in parts {
            let form = if total.has_taps() && part.has_taps() {
                TensorForm::Taps
            } else {
                self.preferred_form(&[&total, &part])
            };
            let left = self.tensor(&total, form);
            let right = self.tensor(&part, form);
            let sum = self.emit.add(&left, &right);
            total = Value::new(value.shape(), form, sum, false);
        }
        value.0.gradients.borrow_mut().push(total.clone());
        Some(total)
    }

    fn zeros(&mut self, like: &Value) -> Value {
        let nothing = self.emit.scalar(0.0);
        let zeros = self.emit.expand(&nothing, like.shape());
        Value::new(like.shape(), TensorForm::Standard, zeros, false)
    }

    /// Emits the backward pass, from the last recorded step to the first.
    pub(crate) fn backward(&mut self) {
        while let Some(step) = self.entries.pop() {
            let gradients: Vec<_> = step.outputs.iter().map(|output| self.gradient(output)).collect();
            if gradients.iter().all(Option::is_none) {
                continue;
            }
            let pairs = step.outputs.iter().zip(gradients);
            let gradients: Vec<Value> = pairs
                .map(|(output, gradient)| gradient.unwrap_or_else(|| self.zeros(output)))
                .collect();
            (step.backward)(self, &gradients);
        }
    }
}
