//! Upper bounds for the buffer sizes of a batch, computed from format and number of rows.

use crate::rows::{end_fields, object_field, position_field};
use crate::{FrameError, RowFormat};
use arrow_schema::DataType;

/// Valid sizes of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferBound {
    /// Size of an element in bytes. Buffer sizes are multiples of this.
    pub(crate) element: usize,
    /// Maximum size in bytes, including Arrow's padding.
    pub(crate) max_bytes: usize,
}

impl BufferBound {
    /// Returns the bound for a buffer with up to `count` elements.
    fn new(element: usize, count: usize) -> Self {
        let bytes = element.saturating_mul(count);
        let max_bytes = bytes.checked_next_multiple_of(64).unwrap_or(bytes);
        Self { element, max_bytes }
    }
}

impl RowFormat {
    /// Returns the bounds for the buffers of a batch with `rows` rows after decompression, in column order.
    pub(crate) fn buffers(&self, rows: usize) -> Result<Vec<BufferBound>, FrameError> {
        let mut bounds = Vec::new();
        add_bounds(position_field().data_type(), rows, 1, &mut bounds);
        if *self == Self::Object {
            add_bounds(object_field().data_type(), rows, 1, &mut bounds);
        }
        for group in self.groups() {
            let width = group.width()?;
            for field in group.fields()? {
                add_bounds(field.data_type(), rows, width, &mut bounds);
            }
        }
        for field in end_fields() {
            add_bounds(field.data_type(), rows, 1, &mut bounds);
        }
        Ok(bounds)
    }
}

/// Adds bounds for the buffers of `column`. The order matches Arrow. Variable-length lists have up to `width`
/// elements per row.
fn add_bounds(column: &DataType, rows: usize, width: usize, bounds: &mut Vec<BufferBound>) {
    bounds.push(BufferBound::new(1, rows.div_ceil(8)));
    match column {
        DataType::FixedSizeList(field, length) => {
            let length = usize::try_from(*length).unwrap_or(0);
            add_bounds(field.data_type(), rows.saturating_mul(length), width, bounds);
        }
        DataType::LargeList(field) => {
            bounds.push(BufferBound::new(8, rows.saturating_add(1)));
            add_bounds(field.data_type(), rows.saturating_mul(width), width, bounds);
        }
        DataType::Struct(fields) => fields
            .iter()
            .for_each(|field| add_bounds(field.data_type(), rows, width, bounds)),
        DataType::Utf8 => {
            bounds.push(BufferBound::new(4, rows.saturating_add(1)));
            bounds.push(BufferBound::new(1, usize::MAX));
        }
        DataType::LargeBinary => {
            bounds.push(BufferBound::new(8, rows.saturating_add(1)));
            bounds.push(BufferBound::new(1, usize::MAX));
        }
        values => bounds.push(BufferBound::new(values.primitive_width().unwrap_or(1), rows)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Values;
    use crate::tests::{divided, part};

    #[test]
    fn buffers_are_bounded_by_the_rows_there_are() {
        let bounds = RowFormat::Tensor(Values::Int8, vec![2, 64]).buffers(3).unwrap();
        let expected = [
            // position
            (1, 64),
            (4, 64),
            // activation
            (1, 64),
            (1, 64),
            (1, 384),
            // scale
            (1, 64),
            (1, 64),
            (4, 64),
            // offset
            (1, 64),
            (1, 64),
            (4, 64),
            // exact
            (1, 64),
            (8, 64),
            (1, 64),
            (4, 1536),
            // error
            (1, 64),
            (1, 64),
            (4, 64),
            (1, usize::MAX),
            (1, 64),
            (4, 64),
            (1, usize::MAX),
            // checksum
            (1, 64),
            (8, 64),
        ];
        assert_eq!(sizes(&bounds), expected);
    }

    #[test]
    fn buffers_of_a_tensor_are_bounded_by_its_own_elements() {
        let format = divided([part("a", Values::F16, &[64]), part("b", Values::I32, &[2])]);
        let bounds = sizes(&format.buffers(3).unwrap());
        let expected = [
            // activation/a
            (1, 64),
            (1, 64),
            (2, 384),
            // exact/a
            (1, 64),
            (8, 64),
            (1, 64),
            (4, 768),
            // activation/b
            (1, 64),
            (1, 64),
            (4, 64),
            // exact/b
            (1, 64),
            (8, 64),
            (1, 64),
            (4, 64),
        ];
        // The first two are those of the positions, and the last nine those of errors and checksums.
        assert_eq!(bounds[2..bounds.len() - 9], expected);
    }

    fn sizes(bounds: &[BufferBound]) -> Vec<(usize, usize)> {
        bounds
            .iter()
            .map(|bound| (bound.element, bound.max_bytes))
            .collect()
    }
}
