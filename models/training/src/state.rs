use crate::TrainingError;
use crate::emitter::Emitter;
use crate::readers::Readers;
use crate::tape::TensorForm;
use frostline_graph::build::{Axis, value};
use frostline_graph::onnx::{NodeProto, ValueInfo};
use frostline_graph::tensors::code_of;
use frostline_tensor::{DType, Data, Shape, ShapeError, Tensor};

/// Tensor that is kept between steps, either a weight or optimizer state.
///
/// The first step reads `initial` from the graph input `input`. Later steps read the tensor that the previous
/// step returned as `output`.
#[derive(Debug, Clone, PartialEq)]
pub struct StateSlot {
    /// Graph input for the tensor.
    pub input: String,
    /// Graph output with the tensor for the next step.
    pub output: String,
    /// Initial tensor in the slot's form. Empty after [`Self::take_initial`].
    pub initial: Tensor,
    /// Name in the suffix, if the slot holds a weight or a statistic of BatchNormalization. The tensor can be
    /// merged into the network under this name.
    pub parameter: Option<String>,
    /// Name of the weight in the suffix, if the slot holds the moving average of a weight.
    pub average_of: Option<String>,
    /// Form and original shape of a convolution weight `[m, c, ..]`, if the slot stores it as `[m, taps·c]`
    /// or, for Winograd's algorithm, as `[taps, m·c]`. Steps do not have to rearrange such weights. `None` if
    /// the slot has the form of the suffix.
    kernel: Option<(TensorForm, Shape)>,
    dtype: DType,
    shape: Shape,
    pub(crate) kind: SlotKind,
}

impl StateSlot {
    /// Input of the slot with the total weight of the samples since the last update, a scalar. Only present
    /// if steps [accumulate](crate::StepSettings::accumulates).
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

    /// Moves [`Self::initial`] out of the slot.
    pub fn take_initial(&mut self) -> Tensor {
        match Tensor::f32([0], Vec::new()) {
            Ok(empty) => std::mem::replace(&mut self.initial, empty),
            Err(_) => self.initial.clone(),
        }
    }

    /// Returns true if the slot accumulates for the next update. An update resets it to zero.
    pub fn is_pending(&self) -> bool {
        matches!(self.kind, SlotKind::GradientSum | SlotKind::Count)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.shape.bytes(self.dtype.size()).unwrap_or(usize::MAX) as u64
    }

    fn fits(&self, tensor: &Tensor) -> bool {
        tensor.dtype() == self.dtype && *tensor.shape() == self.shape
    }

    /// Converts the tensor of the slot to the form in the suffix, for merging into the network.
    ///
    /// # Errors
    /// Returns [`TrainingError::State`] if type or shape of `tensor` differ from the slot.
    pub fn to_weight(&self, tensor: &Tensor) -> Result<Tensor, TrainingError> {
        if !self.fits(tensor) {
            return Err(self.mismatch(tensor));
        }
        match &self.kernel {
            None => Ok(tensor.clone()),
            Some((form, shape)) => channels_first(tensor, *form, shape).map_err(|_| self.mismatch(tensor)),
        }
    }

    /// Converts a result of [`Self::to_weight`], also from a slot with another form, to the form of this
    /// slot.
    ///
    /// # Errors
    /// Returns [`TrainingError::State`] if type or shape of `weight` differ from the slot.
    pub fn to_slot(&self, weight: &Tensor) -> Result<Tensor, TrainingError> {
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

/// Converts `[m, c, ..]` to `[m, taps·c]` or `[taps, m·c]`.
fn channels_last(tensor: &Tensor, form: TensorForm) -> Result<Tensor, ShapeError> {
    let (outer, channels, taps) = filters(tensor.shape())?;
    match form {
        TensorForm::Taps => Tensor::new(
            [taps, outer * channels],
            rearrange(tensor.data(), outer * channels, taps),
        ),
        _ => Tensor::new([outer, taps * channels], rearrange(tensor.data(), channels, taps)),
    }
}

/// Converts a result of [`channels_last`] back to `[m, c, ..]` with the given shape.
fn channels_first(tensor: &Tensor, form: TensorForm, shape: &Shape) -> Result<Tensor, ShapeError> {
    let (outer, channels, taps) = filters(shape)?;
    let columns = match form {
        TensorForm::Taps => outer * channels,
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

/// Transposes all `rows x columns` matrices of a stack.
fn flip<T: Copy>(values: &[T], rows: usize, columns: usize) -> Vec<T> {
    let matrices = values.chunks_exact((rows * columns).max(1));
    matrices
        .flat_map(|matrix| (0..columns).flat_map(|column| matrix.iter().skip(column).step_by(columns)))
        .copied()
        .collect()
}

/// Kind of a slot, from which names are derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    Weight,
    /// Statistic of BatchNormalization.
    Statistic,
    Momentum,
    First,
    Second,
    /// Accumulated gradients since the last update.
    GradientSum,
    /// Accumulated sample weights since the last update.
    Count,
    Average,
    Step,
}

impl SlotKind {
    /// Returns the graph input of the slot for `parameter`.
    pub(crate) fn input(self, parameter: &str) -> String {
        match self {
            Self::Statistic => format!("{parameter}/statistic"),
            Self::Weight => format!("{parameter}/weight"),
            Self::Momentum => format!("{parameter}/momentum"),
            Self::First => format!("{parameter}/first_moment"),
            Self::Second => format!("{parameter}/second_moment"),
            Self::GradientSum => format!("{parameter}/gathered"),
            Self::Average => format!("{parameter}/average"),
            Self::Count => StateSlot::COUNT.to_owned(),
            Self::Step => format!("{parameter}step"),
        }
    }

    fn output(self, parameter: &str) -> String {
        format!("{}/next", self.input(parameter))
    }
}

/// Collects the state slots of a graph while the graph is written.
#[derive(Debug, Default)]
pub(crate) struct StateBuilder {
    pub(crate) slots: Vec<StateSlot>,
}

impl StateBuilder {
    /// Adds a slot for the weight `name`. Returns the input and the shape of the slot.
    pub(crate) fn weight(
        &mut self,
        name: &str,
        initial: Tensor,
        form: TensorForm,
    ) -> Result<(String, Vec<usize>), ShapeError> {
        let (initial, kernel) = match form {
            TensorForm::Standard => (initial, None),
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

    pub(crate) fn statistic(&mut self, name: &str, initial: Tensor) {
        self.add(StateSlot {
            parameter: Some(name.to_owned()),
            ..StateSlot::new(SlotKind::Statistic, name, initial)
        });
    }

    /// Adds a slot of zeros with the shape of the slot of weight `name`. Returns the input.
    pub(crate) fn zeros_like(&mut self, name: &str, kind: SlotKind) -> String {
        self.like(name, |slot| {
            let zeros = Tensor::zeros(slot.dtype, slot.shape.clone());
            let zeros = zeros.unwrap_or_else(|_| slot.initial.clone());
            StateSlot {
                kernel: slot.kernel.clone(),
                ..StateSlot::new(kind, name, zeros)
            }
        })
    }

    /// Adds a slot with the initial value of the slot of weight `name`. Returns the input.
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

    /// Adds a scalar slot with the initial value 0. Returns the input.
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

    /// Sets the next value of a slot to `tensor`.
    pub(crate) fn next(&self, emit: &mut Emitter, name: &str, kind: SlotKind, tensor: &str) {
        emit.rename(tensor, &kind.output(name));
    }

    /// Returns the outputs of the slots that `nodes` may write in place.
    pub(crate) fn in_place(&self, nodes: &[NodeProto]) -> Vec<String> {
        let readers = Readers::new(nodes);
        let slots = self
            .slots
            .iter()
            .filter(|slot| readers.is_read_before(&slot.input, &slot.output));
        slots.map(|slot| slot.output.clone()).collect()
    }

    /// Returns the slots with the descriptions of the graph input and the graph output.
    pub(crate) fn described(&self) -> impl Iterator<Item = (&StateSlot, [ValueInfo; 2])> {
        self.slots.iter().map(|slot| {
            let dtype = slot.dtype;
            let dims = slot.shape.dims();
            let ends = [&slot.input, &slot.output];
            (slot, ends.map(|name| describe(name, dtype, dims)))
        })
    }
}

/// Describes a graph input or output with fixed dimensions.
pub(crate) fn describe(name: &str, dtype: DType, dims: &[usize]) -> ValueInfo {
    let axes: Vec<Axis> = dims.iter().map(|dim| Axis::Fixed(*dim)).collect();
    value(name, code_of(dtype), &axes)
}
