//! Columns of one tensor: `activation`, `scale` and `offset`, and `exact`.

use crate::{FrameError, RowFormat, Values};
use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field};
use frostline_tensor::Shape;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

const ACTIVATION: &str = "activation";
const SCALE: &str = "scale";
const OFFSET: &str = "offset";
const EXACT: &str = "exact";

/// Minimum number of elements for a slice with a separate scale. For smaller slices, the scales would add too
/// many bytes.
const SLICE: usize = 64;

/// Name of the canonical extension type. This module writes its metadata, because arrow-schema 60 uses a
/// different name for `permutation` than the specification and cannot read its own output.
/// <https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor>
const FIXED_SHAPE_TENSOR: &str = "arrow.fixed_shape_tensor";

#[derive(Serialize, Deserialize)]
struct TensorMetadata {
    shape: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permutation: Option<Vec<usize>>,
}

/// Columns of a tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ColumnGroup<'a> {
    /// Name of the tensor, or `None` if rows consist of a single tensor. Column names are followed by a slash and this
    /// name.
    pub(crate) name: Option<&'a str>,
    pub(crate) values: Values,
    pub(crate) shape: &'a [usize],
}

impl RowFormat {
    /// Returns the tensors of a row, or an empty list for objects.
    pub(crate) fn groups(&self) -> Vec<ColumnGroup<'_>> {
        match self {
            Self::Object => Vec::new(),
            Self::Tensor(values, shape) => vec![ColumnGroup {
                name: None,
                values: *values,
                shape,
            }],
            Self::Tensors(tensors) => tensors
                .iter()
                .map(|tensor| ColumnGroup {
                    name: Some(&tensor.name),
                    values: tensor.values,
                    shape: &tensor.shape,
                })
                .collect(),
        }
    }
}

impl ColumnGroup<'_> {
    /// Returns the number of elements in a row.
    pub(crate) fn width(&self) -> Result<usize, FrameError> {
        let elements = Shape::new(self.shape).elements().ok();
        let reason = match elements.filter(|&elements| i32::try_from(elements).is_ok()) {
            Some(0) => "there are no elements",
            Some(elements) => return Ok(elements),
            None => "there are more than 2^31 - 1 elements",
        };
        Err(FrameError::Format {
            shape: self.shape.to_vec(),
            reason: reason.to_owned(),
        })
    }

    /// Returns the number of slices per row. Each slice has a scale and an offset. Slices correspond to the
    /// first axis (channels, tokens) if each has at least 64 elements. Otherwise, the whole row is a slice.
    pub(crate) fn slices(&self) -> usize {
        match self.shape {
            [first, rest @ ..] if Shape::new(rest).elements().unwrap_or(usize::MAX) >= SLICE => *first,
            _ => 1,
        }
    }

    /// Returns the bytes of a row before compression.
    pub(crate) fn row_bytes(&self) -> Result<u64, FrameError> {
        let width = self.width()? as u64;
        let scales = if self.values.has_scales() {
            (self.slices() as u64).saturating_mul(8)
        } else {
            0
        };
        let element = self.values.arrow_type().primitive_width().unwrap_or(0) as u64;
        Ok(scales.saturating_add(element * width))
    }

    /// Returns the bytes of a row in the column `exact`, or 0 without this column.
    pub(crate) fn exact_bytes(&self) -> Result<u64, FrameError> {
        Ok(if self.falls_back() {
            self.width()? as u64 * 4
        } else {
            0
        })
    }

    /// Returns true if rows that do not fit are stored as `f32`. Named tensors of integers are computed as `f32`, so
    /// their values can be anything.
    pub(crate) fn falls_back(&self) -> bool {
        self.values.is_lossy() || self.name.is_some() && self.values != Values::F32
    }

    /// Returns the number of columns.
    pub(crate) fn columns(&self) -> usize {
        let scales = if self.values.has_scales() { 2 } else { 0 };
        1 + scales + usize::from(self.falls_back())
    }

    /// Returns the fields of the columns.
    pub(crate) fn fields(&self) -> Result<Vec<Field>, FrameError> {
        let metadata = TensorMetadata {
            shape: self.shape.to_vec(),
            permutation: None,
        };
        let metadata = serde_json::to_string(&metadata).map_err(FrameError::encode)?;
        let activation = Field::new(self.column(ACTIVATION), self.column_type()?, true);
        let mut fields = vec![activation.with_metadata(HashMap::from([
            (EXTENSION_TYPE_NAME_KEY.to_owned(), FIXED_SHAPE_TENSOR.to_owned()),
            (EXTENSION_TYPE_METADATA_KEY.to_owned(), metadata),
        ]))];
        if self.values.has_scales() {
            let scales = self.scales_type()?;
            fields.push(Field::new(self.column(SCALE), scales.clone(), false));
            fields.push(Field::new(self.column(OFFSET), scales, false));
        }
        if self.falls_back() {
            let exact = DataType::LargeList(exact_field());
            fields.push(Field::new(self.column(EXACT), exact, true));
        }
        Ok(fields)
    }

    /// Returns the storage type of the column `activation`.
    pub(crate) fn column_type(&self) -> Result<DataType, FrameError> {
        list_type(self.values.arrow_type(), self.width()?)
    }

    /// Returns the type of the columns `scale` and `offset`.
    pub(crate) fn scales_type(&self) -> Result<DataType, FrameError> {
        self.width()?;
        list_type(DataType::Float32, self.slices())
    }

    fn column(&self, column: &str) -> String {
        match self.name {
            None => column.to_owned(),
            Some(name) => format!("{column}/{name}"),
        }
    }
}

/// Returns true if `actual` has the same tensor shape as `wanted`, or if `wanted` is not a tensor.
pub(crate) fn same_shape(actual: &Field, wanted: &Field) -> bool {
    let Some(wanted) = tensor_shape(wanted) else {
        return true;
    };
    tensor_shape(actual) == Some(wanted)
}

/// Returns the shape of a tensor column with axes in the usual order.
fn tensor_shape(field: &Field) -> Option<Vec<usize>> {
    if field.extension_type_name() != Some(FIXED_SHAPE_TENSOR) {
        return None;
    }
    let metadata: TensorMetadata = serde_json::from_str(field.extension_type_metadata()?).ok()?;
    metadata.permutation.is_none().then_some(metadata.shape)
}

fn list_type(element: DataType, length: usize) -> Result<DataType, FrameError> {
    let length = i32::try_from(length).map_err(FrameError::encode)?;
    Ok(DataType::FixedSizeList(
        Arc::new(Field::new_list_field(element, false)),
        length,
    ))
}

/// Returns the element field of the column `exact`.
pub(crate) fn exact_field() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Float32, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_64_elements_have_scales_of_their_own() {
        for (shape, slices) in [
            (vec![], 1),
            (vec![512], 1),
            (vec![16, 8, 8], 16),
            (vec![16, 7, 9], 1),
            (vec![197, 768], 197),
            (vec![3, usize::MAX, 2], 3),
        ] {
            let group = ColumnGroup {
                name: None,
                values: Values::Int8,
                shape: &shape,
            };
            assert_eq!(group.slices(), slices, "{shape:?}");
        }
    }
}
