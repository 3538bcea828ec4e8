use crate::TrainingError;
use crate::emitter::Emitter;
use crate::readers::Readers;
use crate::tape::Form;
use frostline_graph::build::{Axis, value};
use frostline_graph::onnx::{NodeProto, ValueInfo};
use frostline_graph::tensors::code_of;
use frostline_tensor::{DType, Data, Shape, ShapeError, Tensor};

/// A tensor that lives from step to step: a weight, or what the optimizer remembers of one.
///
/// Feed `initial` as `input` at the first step, and from then on what the step before gave as `output`.
#[derive(Debug, Clone, PartialEq)]
pub struct StateSlot {
    /// The graph input that takes the tensor.
    pub input: String,
    /// The graph output that gives the tensor of the next step.
    pub output: String,
    /// The tensor before the first step, as the slot holds it; empty once it was [taken](Self::take_initial).
    pub initial: Tensor,
    /// The name in the suffix of what the slot holds, when that is a weight or a statistic of BatchNormalization: what to merge back.
    pub parameter: Option<String>,
    /// The weight's name in the suffix, when the slot holds the moving average of a weight.
    pub average_of: Option<String>,
    /// The shape in the suffix of a convolution's weight `[m, c, ..]`, which the slot holds as `[m, taps·c]` or, of Winograd's, as
    /// `[taps, m·c]`, so that no step has to rearrange it; `None` for what lies as in the suffix.
    kernel: Option<(Form, Shape)>,
    dtype: DType,
    shape: Shape,
    pub(crate) kind: SlotKind,
}

impl StateSlot {
    /// The input of the slot with what samples count whose update is to come, a scalar, where steps [accumulate](crate::StepSettings::accumulates).
    pub const COUNT: &str = "count";

    fn new(kind: SlotKind, name: &str, initial: Tensor) -> Self {
        Self {
            kind,
            input: kind.input(name),
            output: kind.output(name),
            dtype: initial.dtype(),
            shape: initial.shape().clone(),
            initial,
            parameter: None,
            average_of: None,
            kernel: None,
        }
    }

    /// [`Self::initial`], without leaving a copy of it here.
    pub fn take_initial(&mut self) -> Tensor {
        match Tensor::f32([0], Vec::new()) {
            Ok(empty) => std::mem::replace(&mut self.initial, empty),
            Err(_) => self.initial.clone(),
        }
    }

    /// Whether the slot holds what waits for an update: zeros, once that is made.
    pub fn is_pending(&self) -> bool {
        matches!(self.kind, SlotKind::Gathered | SlotKind::Count)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.shape.bytes(self.dtype.size()).unwrap_or(usize::MAX) as u64
    }

    fn fits(&self, tensor: &Tensor) -> bool {
        tensor.dtype() == self.dtype && *tensor.shape() == self.shape
    }

    /// The slot's tensor as the suffix has it: what to merge back into the model.
    ///
    /// # Errors
    /// [`TrainingError::State`] when `tensor` is not of the slot's type and shape.
    pub fn to_weight(&self, tensor: &Tensor) -> Result<Tensor, TrainingError> {
        if !self.fits(tensor) {
            return Err(self.mismatch(tensor));
        }
        match &self.kernel {
            None => Ok(tensor.clone()),
            Some((form, shape)) => channels_first(tensor, *form, shape).map_err(|_| self.mismatch(tensor)),
        }
    }

    /// What [`Self::to_weight`] gave, of this slot or of one that lies otherwise, as this slot holds it.
    ///
    /// # Errors
    /// [`TrainingError::State`] when `weight` is not of the slot's type and shape.
    pub fn hold(&self, weight: &Tensor) -> Result<Tensor, TrainingError> {
        let held = match &self.kernel {
            None => Ok(weight.clone()),
            Some((form, _)) => channels_last(weight, *form),
        };
        held.ok()
            .filter(|held| self.fits(held))
            .ok_or_else(|| self.mismatch(weight))
    }

    fn mismatch(&self, tensor: &Tensor) -> TrainingError {
        TrainingError::State {
            slot: self.input.clone(),
            expected: format!("{}{}", self.dtype, self.shape),
            actual: tensor.describe(),
        }
    }
}

/// `[m, c, ..]` as `[m, taps·c]`, or as `[taps, m·c]`.
fn channels_last(tensor: &Tensor, form: Form) -> Result<Tensor, ShapeError> {
    let (outer, channels, taps) = filters(tensor.shape())?;
    match form {
        Form::Taps => Tensor::new(
            [taps, outer * channels],
            rearrange(tensor.data(), outer * channels, taps),
        ),
        _ => Tensor::new([outer, taps * channels], rearrange(tensor.data(), channels, taps)),
    }
}

/// What [`channels_last`] made, as `[m, c, ..]`, the given shape.
fn channels_first(tensor: &Tensor, form: Form, shape: &Shape) -> Result<Tensor, ShapeError> {
    let (outer, channels, taps) = filters(shape)?;
    let columns = match form {
        Form::Taps => outer * channels,
        _ => channels,
    };
    Tensor::new(shape.clone(), rearrange(tensor.data(), taps, columns))
}

fn filters(shape: &Shape) -> Result<(usize, usize, usize), ShapeError> {
    let [outer, channels, spatial @ ..] = shape.dims() else {
        return Err(ShapeError::Scalar);
    };
    Ok((*outer, *channels, Shape::new(spatial).elements()?))
}

fn rearrange(data: &Data, rows: usize, columns: usize) -> Data {
    match data {
        Data::F64(values) => Data::F64(flip(values, rows, columns)),
        Data::F32(values) => Data::F32(flip(values, rows, columns)),
        other => other.clone(),
    }
}

/// Transposes every `rows x columns` matrix of a stack.
fn flip<T: Copy>(values: &[T], rows: usize, columns: usize) -> Vec<T> {
    let matrices = values.chunks_exact((rows * columns).max(1));
    matrices
        .flat_map(|matrix| (0..columns).flat_map(|column| matrix.iter().skip(column).step_by(columns)))
        .copied()
        .collect()
}

/// What a slot holds; its name follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    Weight,
    /// Of BatchNormalization.
    Statistic,
    Momentum,
    First,
    Second,
    /// The sum of the gradients of samples whose update is to come.
    Gathered,
    /// What these samples count.
    Count,
    Average,
    Step,
}

impl SlotKind {
    /// The graph input of the slot of `parameter`.
    pub(crate) fn input(self, parameter: &str) -> String {
        match self {
            Self::Statistic => format!("{parameter}/statistic"),
            Self::Weight => format!("{parameter}/weight"),
            Self::Momentum => format!("{parameter}/momentum"),
            Self::First => format!("{parameter}/first_moment"),
            Self::Second => format!("{parameter}/second_moment"),
            Self::Gathered => format!("{parameter}/gathered"),
            Self::Average => format!("{parameter}/average"),
            Self::Count => StateSlot::COUNT.to_owned(),
            Self::Step => format!("{parameter}step"),
        }
    }

    fn output(self, parameter: &str) -> String {
        format!("{}/next", self.input(parameter))
    }
}

/// Collects the state slots of a graph while it is written.
#[derive(Debug, Default)]
pub(crate) struct StateBuilder {
    pub(crate) slots: Vec<StateSlot>,
}

impl StateBuilder {
    /// Adds a slot for the weight `name` and returns its input and its shape.
    pub(crate) fn weight(
        &mut self,
        name: &str,
        initial: Tensor,
        form: Form,
    ) -> Result<(String, Vec<usize>), ShapeError> {
        let (initial, kernel) = match form {
            Form::Standard => (initial, None),
            _ => (
                channels_last(&initial, form)?,
                Some((form, initial.shape().clone())),
            ),
        };
        let dims = initial.shape().dims().to_vec();
        let input = self.add(StateSlot {
            parameter: Some(name.to_owned()),
            kernel,
            ..StateSlot::new(SlotKind::Weight, name, initial)
        });
        Ok((input, dims))
    }

    /// Adds a slot for the statistic `name`.
    pub(crate) fn statistic(&mut self, name: &str, initial: Tensor) {
        self.add(StateSlot {
            parameter: Some(name.to_owned()),
            ..StateSlot::new(SlotKind::Statistic, name, initial)
        });
    }

    /// Adds a slot of zeros, shaped as that of the weight `name`, and returns its input.
    pub(crate) fn zeros_like(&mut self, name: &str, kind: SlotKind) -> String {
        self.like(name, |slot| StateSlot {
            kernel: slot.kernel.clone(),
            ..StateSlot::new(kind, name, zeroed(&slot.initial))
        })
    }

    /// Adds a slot that begins as that of the weight `name` and returns its input.
    pub(crate) fn average_of(&mut self, name: &str) -> String {
        self.like(name, |slot| StateSlot {
            average_of: Some(name.to_owned()),
            kernel: slot.kernel.clone(),
            ..StateSlot::new(SlotKind::Average, name, slot.initial.clone())
        })
    }

    fn like(&mut self, name: &str, make: impl FnOnce(&StateSlot) -> StateSlot) -> String {
        let weight = SlotKind::Weight.input(name);
        let slot = self.slots.iter().find(|slot| slot.input == weight).map(make);
        slot.map_or_else(String::new, |slot| self.add(slot))
    }

    /// Adds a scalar that begins at 0, and returns its input.
    pub(crate) fn scalar(&mut self, name: &str, kind: SlotKind, zero: Data) -> String {
        let zero = Tensor::new([0; 0], zero);
        zero.map_or_else(
            |_| String::new(),
            |zero| self.add(StateSlot::new(kind, name, zero)),
        )
    }

    fn add(&mut self, slot: StateSlot) -> String {
        let input = slot.input.clone();
        self.slots.push(slot);
        input
    }

    /// Makes `tensor` the next value of a slot.
    pub(crate) fn next(&self, emit: &mut Emitter, name: &str, kind: SlotKind, tensor: &str) {
        emit.rename(tensor, &kind.output(name));
    }

    /// The outputs of the slots that these nodes may write in place.
    pub(crate) fn in_place(&self, nodes: &[NodeProto]) -> Vec<String> {
        let readers = Readers::new(nodes);
        let fits = |slot: &&StateSlot| readers.is_read_before(&slot.input, &slot.output);
        let slots = self.slots.iter().filter(fits);
        slots.map(|slot| slot.output.clone()).collect()
    }

    /// The slots, each as an input of the graph and as an output.
    pub(crate) fn described(&self) -> impl Iterator<Item = (&StateSlot, [ValueInfo; 2])> {
        self.slots.iter().map(|slot| {
            let (dtype, dims) = (slot.dtype, slot.shape.dims());
            let ends = [&slot.input, &slot.output];
            (slot, ends.map(|name| describe(name, dtype, dims)))
        })
    }
}

/// The description of a graph input or output with fixed dimensions.
pub(crate) fn describe(name: &str, dtype: DType, dims: &[usize]) -> ValueInfo {
    let axes: Vec<Axis> = dims.iter().map(|dim| Axis::Fixed(*dim)).collect();
    value(name, code_of(dtype), &axes)
}

fn zeroed(tensor: &Tensor) -> Tensor {
    let mut zeros = tensor.clone();
    let data = match tensor.data() {
        Data::F64(values) => Data::F64(vec![0.0; values.len()]),
        data => Data::F32(vec![0.0; data.len()]),
    };
    if let Ok(tensor) = Tensor::new(tensor.shape().clone(), data) {
        zeros = tensor;
    }
    zeros
}
