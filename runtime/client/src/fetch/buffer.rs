use frostline_images::normalize;
use frostline_primitives::Lock;
use frostline_tensor::{Data, OpError, PixelSpec, ShapeError, Tensor};
use frostline_wire::RowValue;

/// Memory of one batch. Rows are copied to the final position, in any order and by concurrent requests.
pub(super) struct BatchBuffer {
    shape: Vec<usize>,
    width: usize,
    rows: Lock<BufferedRows>,
}

enum BufferedRows {
    /// Activations or normalized pixels.
    F32(Vec<f32>),
    /// Pixels to normalize with this pixel spec once the batch is complete.
    U8(Vec<u8>, PixelSpec),
}

impl BatchBuffer {
    /// Allocates `count` rows of `shape`. If `pixels` is set, rows are bytes that are normalized by
    /// [`BatchBuffer::finish`].
    pub(super) fn new(count: usize, shape: &[usize], pixels: Option<PixelSpec>) -> Result<Self, ShapeError> {
        let whole = frostline_tensor::Shape::new(shape);
        let width = whole.elements()?;
        let elements = whole.batched(count).elements()?;
        let rows = Lock::new(match pixels {
            None => BufferedRows::F32(vec![0.0; elements]),
            Some(spec) => BufferedRows::U8(vec![0; elements], spec),
        });
        Ok(Self {
            shape: shape.to_vec(),
            width,
            rows,
        })
    }

    /// Copies or decodes a row into the batch. Returns `false` if the type or length does not match the
    /// batch.
    pub(super) fn set(&self, index: usize, value: &RowValue<'_>) -> bool {
        let range = index * self.width..(index + 1) * self.width;
        match (&mut *self.rows.lock(), value) {
            (BufferedRows::F32(rows), row) => rows.get_mut(range).is_some_and(|place| row.read_into(place)),
            (BufferedRows::U8(rows, _), RowValue::U8(row)) => copy(rows.get_mut(range), row),
            _ => false,
        }
    }

    /// Returns the rows `kept` (ascending indices), moved together, as `f32`. The buffer is empty afterwards.
    pub(super) fn finish(&self, kept: &[usize]) -> Result<Tensor, OpError> {
        let contents = std::mem::replace(&mut *self.rows.lock(), BufferedRows::F32(Vec::new()));
        let shape = frostline_tensor::Shape::new(self.shape.as_slice()).batched(kept.len());
        match contents {
            BufferedRows::F32(rows) => Ok(Tensor::new(shape, Data::F32(compact(rows, kept, self.width)))?),
            BufferedRows::U8(rows, spec) => {
                let pixels = Tensor::new(shape, Data::U8(compact(rows, kept, self.width)))?;
                Ok(normalize(&pixels, &spec)?)
            }
        }
    }
}

fn copy<T: Copy>(to: Option<&mut [T]>, from: &[T]) -> bool {
    match to {
        Some(to) if to.len() == from.len() => {
            to.copy_from_slice(from);
            true
        }
        _ => false,
    }
}

fn compact<T: Copy>(mut rows: Vec<T>, kept: &[usize], width: usize) -> Vec<T> {
    for (to, &from) in kept.iter().enumerate() {
        if to != from {
            rows.copy_within(from * width..(from + 1) * width, to * width);
        }
    }
    rows.truncate(kept.len() * width);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_any_order_and_gaps_close() {
        let buffer = BatchBuffer::new(3, &[2], None).unwrap();
        assert!(buffer.set(2, &RowValue::F32(&[5.0, 6.0])));
        assert!(buffer.set(0, &RowValue::F32(&[1.0, 2.0])));
        assert_eq!(
            buffer.finish(&[0, 2]).unwrap(),
            Tensor::f32([2, 2], vec![1.0, 2.0, 5.0, 6.0]).unwrap()
        );
    }

    #[test]
    fn narrow_rows_are_decoded_in_place() {
        let buffer = BatchBuffer::new(3, &[2], None).unwrap();
        let halves = frostline_tensor::to_f16(&[0.5, -3.0]);
        assert!(buffer.set(1, &RowValue::F16(&halves)));
        assert!(buffer.set(
            0,
            &RowValue::Int8 {
                values: &[-128, 127],
                scales: &[2.0],
                offsets: &[0.0]
            }
        ));
        assert!(buffer.set(2, &RowValue::F32(&[1e6, 1.0])));
        assert!(!buffer.set(3, &RowValue::F16(&halves)));
        assert_eq!(
            buffer.finish(&[0, 1, 2]).unwrap().as_f32(),
            Some([0.0, 510.0, 0.5, -3.0, 1e6, 1.0].as_slice())
        );
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let buffer = BatchBuffer::new(1, &[2], None).unwrap();
        assert!(!buffer.set(0, &RowValue::F32(&[1.0])));
        assert!(!buffer.set(0, &RowValue::U8(&[1, 2])));
        assert!(!buffer.set(1, &RowValue::F32(&[1.0, 2.0])));
    }

    #[test]
    fn bytes_are_normalized_at_the_end() {
        let spec = PixelSpec {
            resize: 1,
            crop_height: 1,
            crop_width: 1,
            mean: [0.5; 3],
            std: [0.5; 3],
            ..PixelSpec::imagenet(1, 1)
        };
        let buffer = BatchBuffer::new(1, &[3, 1, 1], Some(spec)).unwrap();
        assert!(buffer.set(0, &RowValue::U8(&[0, 255, 0])));
        assert_eq!(
            buffer.finish(&[0]).unwrap().as_f32(),
            Some([-1.0, 1.0, -1.0].as_slice())
        );
    }
}
