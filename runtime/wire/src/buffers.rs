//! How large the buffers of a batch can be, from its format and its rows alone.

use crate::{FrameError, RowFormat};
use arrow_schema::DataType;

/// What a buffer of a batch may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferBound {
    /// Bytes of one element; its length is a multiple of it.
    pub(crate) element: usize,
    /// Its most bytes, with Arrow's padding.
    pub(crate) most: usize,
}

impl RowFormat {
    /// The buffers a batch of `rows` rows has, in the order of its columns, once decompressed.
    pub(crate) fn buffers(&self, rows: usize, checksums: bool) -> Result<Vec<BufferBound>, FrameError> {
        let width = self.width()?.unwrap_or(1);
        let mut bounds = Vec::new();
        for field in self.schema(checksums)?.fields() {
            bound(field.data_type(), rows, width, &mut bounds);
        }
        Ok(bounds)
    }
}

/// Adds the bounds of a column's buffers, in Arrow's order. A list of free length has at most `width` elements a row.
fn bound(column: &DataType, rows: usize, width: usize, bounds: &mut Vec<BufferBound>) {
    let mut add = |element: usize, count: usize| {
        let bytes = element.saturating_mul(count);
        let most = bytes.checked_next_multiple_of(64).unwrap_or(bytes);
        bounds.push(BufferBound { element, most });
    };
    add(1, rows.div_ceil(8));
    match column {
        DataType::FixedSizeList(field, length) => {
            let length = usize::try_from(*length).unwrap_or(0);
            bound(field.data_type(), rows.saturating_mul(length), width, bounds);
        }
        DataType::LargeList(field) => {
            add(8, rows.saturating_add(1));
            bound(field.data_type(), rows.saturating_mul(width), width, bounds);
        }
        DataType::Struct(fields) => fields
            .iter()
            .for_each(|field| bound(field.data_type(), rows, width, bounds)),
        DataType::Utf8 => {
            add(4, rows.saturating_add(1));
            add(1, usize::MAX);
        }
        DataType::LargeBinary => {
            add(8, rows.saturating_add(1));
            add(1, usize::MAX);
        }
        values => add(values.primitive_width().unwrap_or(1), rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_bounded_by_the_rows_there_are() {
        let bounds = RowFormat::Int8(vec![2, 64]).buffers(3, true).unwrap();
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
        let actual: Vec<_> = bounds.iter().map(|bound| (bound.element, bound.most)).collect();
        assert_eq!(actual, expected);
    }
}
