use crate::{BatchLimits, ImageError};
use frostline_tensor::{
    Data, LoadedPixels, Normalization, NormalizationTable, OpError, PixelFormat, PixelSpec, SampleFailure,
    Shape, Tensor,
};

/// A batch tensor under construction. Rows can be set in any order.
pub(crate) struct Batch {
    sample_shape: Shape,
    pixels: PixelBuffer,
    outcomes: Vec<Option<Result<(), OpError>>>,
}

enum PixelBuffer {
    U8(Vec<u8>),
    F32(Vec<f32>, Box<NormalizationTable>),
}

impl Batch {
    /// Allocates a batch of `samples` rows.
    ///
    /// # Errors
    /// Returns [`ImageError::Spec`] if the spec is invalid, and [`ImageError::BatchTooLarge`] if the batch
    /// exceeds the limit. Both are detected before the allocation.
    pub(crate) fn new(
        samples: usize,
        spec: &PixelSpec,
        format: PixelFormat,
        limits: &BatchLimits,
    ) -> Result<Self, ImageError> {
        spec.check()?;
        let sample_shape = Shape::new(spec.sample_shape());
        let element = match format {
            PixelFormat::U8 => 1,
            PixelFormat::F32 => 4,
        };
        let bytes = sample_shape.batched(samples).bytes(element)?;
        if bytes > limits.max_bytes {
            return Err(ImageError::BatchTooLarge {
                samples,
                bytes,
                limit: limits.max_bytes,
            });
        }
        let elements = bytes / element;
        let pixels = match format {
            PixelFormat::U8 => PixelBuffer::U8(vec![0; elements]),
            PixelFormat::F32 => PixelBuffer::F32(
                vec![0.0; elements],
                Box::new(Normalization::from_spec(spec).table()),
            ),
        };
        Ok(Self {
            sample_shape,
            pixels,
            outcomes: vec![None; samples],
        })
    }

    /// Sets row `index` to a crop `u8[3, h, w]`, or records the failure.
    pub(crate) fn set(&mut self, index: usize, crop: Result<Vec<u8>, OpError>) {
        let outcome = crop.and_then(|crop| self.write(index, &crop));
        if let Some(slot) = self.outcomes.get_mut(index) {
            *slot = Some(outcome);
        }
    }

    fn write(&mut self, index: usize, crop: &[u8]) -> Result<(), OpError> {
        let start = index * crop.len();
        let range = start..start + crop.len();
        let written = match &mut self.pixels {
            PixelBuffer::U8(values) => values.get_mut(range).map(|row| row.copy_from_slice(crop)),
            PixelBuffer::F32(values, table) => values.get_mut(range).map(|row| table.apply(crop, row)),
        };
        written.ok_or_else(|| OpError::runtime(format!("row {index} is out of range for the batch")))
    }

    /// Returns the loaded rows in order, and the failures.
    pub(crate) fn finish(self) -> Result<LoadedPixels, OpError> {
        let width = self.sample_shape.elements()?;
        let mut kept = Vec::new();
        let mut failed = Vec::new();
        for (index, outcome) in self.outcomes.into_iter().enumerate() {
            match outcome {
                Some(Ok(())) => kept.push(index),
                Some(Err(error)) => failed.push(SampleFailure { index, error }),
                None => failed.push(SampleFailure {
                    index,
                    error: ImageError::PoolClosed.into(),
                }),
            }
        }
        let data = match self.pixels {
            PixelBuffer::U8(values) => Data::U8(keep_rows(values, &kept, width)),
            PixelBuffer::F32(values, _) => Data::F32(keep_rows(values, &kept, width)),
        };
        let pixels = Tensor::new(self.sample_shape.batched(kept.len()), data)?;
        Ok(LoadedPixels { pixels, failed })
    }
}

/// Compacts the rows `kept`, which must be in ascending order, to the front of `values`.
fn keep_rows<T: Copy>(mut values: Vec<T>, kept: &[usize], width: usize) -> Vec<T> {
    for (to, &from) in kept.iter().enumerate() {
        if to != from {
            values.copy_within(from * width..(from + 1) * width, to * width);
        }
    }
    values.truncate(kept.len() * width);
    values
}
