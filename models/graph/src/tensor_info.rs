//! Descriptions of tensors at which the network can be divided.

use crate::analysis::Analysis;
use crate::joint_names::ADDED;
use crate::onnx::data_type;
use crate::tensors::dtype_of;
use frostline_tensor::{DType, Shape};

/// Description of a network's input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name of the tensor.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape per sample, without the batch axis.
    pub shape: Shape,
}

impl TensorInfo {
    /// Returns the bytes for one sample, or `usize::MAX` on overflow.
    pub fn bytes_per_sample(&self) -> usize {
        self.shape.bytes(self.dtype.size()).unwrap_or(usize::MAX)
    }
}

/// Describes a value at which the network can be split, or returns `None` for other values.
pub(crate) fn info(analysis: &Analysis<'_>, name: &str) -> Option<TensorInfo> {
    let shape = Shape::from(analysis.row_of(name)?);
    let dtype = dtype_of(analysis.probes.data_type(name))?;
    shape.bytes(dtype.size()).ok()?;
    Some(TensorInfo {
        name: name.into(),
        dtype,
        shape,
    })
}

/// Describes a value that can be part of a joint cut. Returns `None` for tensors that joint cuts and inputs added.
pub(crate) fn joinable(analysis: &Analysis<'_>, name: &str) -> Option<TensorInfo> {
    if name.starts_with(ADDED) {
        return None;
    }
    info_of_any(analysis, name)
}

/// Describes a value like [`info`]. Booleans count as bytes.
pub(crate) fn info_of_any(analysis: &Analysis<'_>, name: &str) -> Option<TensorInfo> {
    if analysis.probes.data_type(name) != data_type::BOOL {
        return info(analysis, name);
    }
    Some(TensorInfo {
        name: name.into(),
        dtype: DType::U8,
        shape: Shape::from(analysis.row_of(name)?),
    })
}
