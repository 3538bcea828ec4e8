//! Small known values: the integers (and few numbers) that shape-computing chains work on.

use crate::onnx::{TensorProto, data_type};
use crate::tensors::{dims_of, from_proto};
use frostline_tensor::Data;

/// Elements a literal may have. Shapes, axes and paddings have a handful; with thousands each, a stranger's model of many
/// nodes could make us hold gigabytes.
pub(crate) const MOST_ELEMENTS: usize = 256;

/// The elements of a known value, row-major. Booleans are the integers 0 and 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Integers(Vec<i64>),
    Numbers(Vec<f64>),
}

impl Literal {
    /// The value of a small constant tensor; `None` when it is large or of a type that shapes are never made of.
    pub(crate) fn of(proto: &TensorProto) -> Option<Self> {
        let elements = dims_of(proto)
            .ok()?
            .iter()
            .try_fold(1_usize, |all, &dim| all.checked_mul(dim))?;
        if elements > MOST_ELEMENTS {
            return None;
        }
        if proto.data_type == data_type::BOOL {
            return booleans(proto, elements);
        }
        let literal = match from_proto(proto).ok()?.into_data() {
            Data::I64(values) => Self::Integers(values),
            Data::I32(values) => Self::Integers(values.into_iter().map(i64::from).collect()),
            Data::U8(values) => Self::Integers(values.into_iter().map(i64::from).collect()),
            Data::F32(values) => Self::Numbers(values.into_iter().map(f64::from).collect()),
            Data::F64(values) => Self::Numbers(values),
            Data::F16(_) | Data::Bf16(_) => return None,
        };
        Some(literal)
    }

    pub(crate) fn integers(&self) -> Option<&[i64]> {
        match self {
            Self::Integers(values) => Some(values),
            Self::Numbers(_) => None,
        }
    }

    /// The elements at `positions`, in that order.
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

    /// As numbers, whatever they are.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        match self {
            Self::Integers(values) => values.iter().map(|&value| as_number(value)).collect(),
            Self::Numbers(values) => values.clone(),
        }
    }
}

fn booleans(proto: &TensorProto, elements: usize) -> Option<Literal> {
    let values: Vec<i64> = if proto.raw_data.is_empty() {
        proto
            .int32_data
            .iter()
            .map(|&value| i64::from(value != 0))
            .collect()
    } else {
        proto
            .raw_data
            .iter()
            .map(|&value| i64::from(value != 0))
            .collect()
    };
    (values.len() == elements).then_some(Literal::Integers(values))
}

/// Shapes stay far below 2^53, where this is exact.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn as_number(value: i64) -> f64 {
    value as f64
}

/// Rounds toward zero, as a cast in ONNX does; saturates.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn as_integer(value: f64) -> i64 {
    value as i64
}
