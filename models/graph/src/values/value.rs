use super::Literal;
use crate::GraphError;
use crate::onnx::{DimensionValue, TensorProto, ValueInfo};

/// Properties of a value before execution.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InferredValue {
    /// ONNX's code of the element type, or 0 if it is unknown.
    pub(crate) data_type: i32,
    pub(crate) dims: Option<Vec<usize>>,
    pub(crate) literal: Option<Literal>,
}

impl InferredValue {
    pub(crate) const UNKNOWN: Self = Self {
        data_type: 0,
        dims: None,
        literal: None,
    };

    pub(crate) fn with_shape(data_type: i32, dims: Vec<usize>) -> Self {
        Self {
            data_type,
            dims: Some(dims),
            literal: None,
        }
    }

    pub(crate) fn known(data_type: i32, dims: Vec<usize>, literal: Literal) -> Self {
        Self {
            literal: Some(literal),
            ..Self::with_shape(data_type, dims)
        }
    }

    pub(crate) fn constant(proto: &TensorProto) -> Result<Self, GraphError> {
        Ok(Self {
            literal: Literal::from_proto(proto),
            ..Self::with_shape(proto.data_type, crate::tensors::dims_of(proto)?)
        })
    }

    /// Returns an input of the network, with every open axis set to `batch`.
    pub(crate) fn input(input: &ValueInfo, batch: usize) -> Self {
        let Some(tensor) = input.tensor() else {
            return Self::UNKNOWN;
        };
        let dims = tensor.shape.as_ref().map(|shape| {
            let dims = shape.dim.iter().map(|dim| match dim.value {
                Some(DimensionValue::DimValue(size)) => usize::try_from(size).unwrap_or(batch),
                _ => batch,
            });
            dims.collect()
        });
        Self {
            data_type: tensor.elem_type,
            dims,
            literal: None,
        }
    }
}
