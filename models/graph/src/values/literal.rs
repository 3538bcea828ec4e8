//! Contents of small values. Shape computations use integers and, rarely, floating-point numbers.

use crate::onnx::{TensorProto, data_type};
use crate::tensors::{dims_of, from_proto, integers, numbers};
use frostline_tensor::Data;

/// Maximum number of elements of a literal. Shapes, axes and paddings have a handful. With a limit of
/// thousands, an untrusted model could use gigabytes of memory.
pub(crate) const MOST_ELEMENTS: usize = 256;

/// Elements of a known value, in row-major order. Booleans are stored as the integers 0 and 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
}

impl Literal {
    /// Reads a small constant tensor. Returns `None` if it is large or its type does not occur in shapes.
    pub(crate) fn from_proto(proto: &TensorProto) -> Option<Self> {
        let elements = dims_of(proto)
            .ok()?
            .iter()
            .try_fold(1_usize, |all, &dim| all.checked_mul(dim))?;
        if elements > MOST_ELEMENTS {
            return None;
        }
        if proto.data_type == data_type::BOOL {
            return booleans(proto);
        }
        let literal = match from_proto(proto).ok()?.into_data() {
            Data::I64(values) => Self::Integers(values),
            Data::I32(values) => Self::Integers(values.into_iter().map(i64::from).collect()),
            Data::U8(values) => Self::Integers(values.into_iter().map(i64::from).collect()),
            data => Self::Numbers(numbers(&data)?),
        };
        Some(literal)
    }

    pub(crate) fn integers(&self) -> Option<&[i64]> {
        match self {
            Self::Integers(values) => Some(values),
            Self::Numbers(_) => None,
        }
    }

    pub(crate) fn pick(&self, positions: &[usize]) -> Option<Self> {
        fn pick<T: Copy>(values: &[T], positions: &[usize]) -> Option<Vec<T>> {
            positions
                .iter()
                .map(|&position| values.get(position).copied())
                .collect()
        }
        Some(match self {
            Self::Integers(values) => Self::Integers(pick(values, positions)?),
            Self::Numbers(values) => Self::Numbers(pick(values, positions)?),
        })
    }

    /// Returns the elements of a strided view with dimensions `dims`, which begins at `start` and has a step
    /// per axis.
    pub(crate) fn walk(&self, start: i64, dims: &[usize], steps: &[i64]) -> Option<Self> {
        if dims.contains(&0) {
            return self.pick(&[]);
        }
        let mut positions = vec![start];
        for (&size, &step) in dims.iter().zip(steps) {
            let size = i64::try_from(size).ok()?;
            positions = positions
                .iter()
                .flat_map(|&from| (0..size).map(move |index| from + index * step))
                .collect();
        }
        let positions = positions
            .into_iter()
            .map(|position| usize::try_from(position).ok());
        self.pick(&positions.collect::<Option<Vec<usize>>>()?)
    }

    /// Returns the elements of a tensor with dimensions `from`, broadcast to `to`.
    pub(crate) fn stretched(&self, from: &[usize], to: &[usize]) -> Option<Self> {
        let lead = to.len().checked_sub(from.len())?;
        let own = strides(from)?.into_iter().zip(from);
        let own = own.map(|(step, size)| if *size == 1 { 0 } else { step });
        let steps: Vec<i64> = std::iter::repeat_n(0, lead).chain(own).collect();
        self.walk(0, to, &steps)
    }

    pub(crate) fn numbers(&self) -> Vec<f64> {
        match self {
            Self::Integers(values) => values.iter().map(|&value| as_number(value)).collect(),
            Self::Numbers(values) => values.clone(),
        }
    }
}

/// Returns the row-major strides of `dims`. The unit is an element.
pub(crate) fn strides(dims: &[usize]) -> Option<Vec<i64>> {
    let mut step = 1_i64;
    let mut strides = Vec::with_capacity(dims.len());
    for &dim in dims.iter().rev() {
        strides.push(step);
        step = step.checked_mul(i64::try_from(dim).ok()?)?;
    }
    strides.reverse();
    Some(strides)
}

fn booleans(proto: &TensorProto) -> Option<Literal> {
    let bytes = TensorProto {
        data_type: data_type::UINT8,
        ..proto.clone()
    };
    let values = integers(&bytes)?.into_iter();
    Some(Literal::Integers(
        values.map(|value| i64::from(value != 0)).collect(),
    ))
}

/// Converts an integer to a float. The result is exact below 2^53, and shapes stay far below.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn as_number(value: i64) -> f64 {
    value as f64
}

/// Rounds toward zero like a cast in ONNX, and saturates.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn as_integer(value: f64) -> i64 {
    value as i64
}
