use arrow_buffer::ToByteSlice;
use frostline_tensor::{Affine, dequantize, from_f16};
use half::f16;

/// Encoded activation of a sample in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub enum RowValue<'a> {
    /// Raw object bytes.
    Object(&'a [u8]),
    /// Activations in the original precision.
    F32(&'a [f32]),
    /// Pixels before normalization, or booleans and bytes as part of [`RowValue::Tensors`].
    U8(&'a [u8]),
    /// Activations in half precision.
    F16(&'a [f16]),
    /// Activations in 8 bits: `offset + scale * (value + 128)`. The row is divided into slices of equal
    /// length, and each slice has a scale and an offset.
    Int8 {
        /// Quantized elements.
        values: &'a [i8],
        /// Scale per slice.
        scales: &'a [f32],
        /// Offset per slice, which is the minimum of the slice.
        offsets: &'a [f32],
    },
    /// Integers.
    I32(&'a [i32]),
    /// Tensors with separate encodings, which are concatenated in this order.
    Tensors(Vec<Self>),
}

impl RowValue<'_> {
    /// Passes the bytes of the elements to `visit`, followed by those of scales and offsets if there are any.
    pub(crate) fn for_each_part(&self, visit: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Object(bytes) | Self::U8(bytes) => visit(bytes),
            Self::F32(values) => visit(values.to_byte_slice()),
            Self::F16(values) => visit(values.to_byte_slice()),
            Self::I32(values) => visit(values.to_byte_slice()),
            Self::Int8 {
                values,
                scales,
                offsets,
            } => {
                visit(values.to_byte_slice());
                visit(scales.to_byte_slice());
                visit(offsets.to_byte_slice());
            }
            Self::Tensors(tensors) => tensors.iter().for_each(|tensor| tensor.for_each_part(visit)),
        }
    }

    /// Returns the size of the value in bytes.
    pub fn byte_len(&self) -> usize {
        let mut bytes = 0;
        self.for_each_part(&mut |part| bytes += part.len());
        bytes
    }

    /// Decodes the activation into `into`. Returns false if the length differs, or if the value is an object
    /// or pixels. The contents of `into` are then unspecified.
    pub fn read_into(&self, into: &mut [f32]) -> bool {
        match self {
            Self::Object(_) | Self::U8(_) => false,
            Self::F32(values) => {
                let fits = values.len() == into.len();
                if fits {
                    into.copy_from_slice(values);
                }
                fits
            }
            Self::F16(values) => from_f16(values, into),
            Self::Int8 {
                values,
                scales,
                offsets,
            } => read_int8(values, scales, offsets, into),
            Self::I32(values) => widen(values, into, |value| value as f32),
            Self::Tensors(tensors) => read_tensors(tensors, into),
        }
    }

    /// Returns the number of elements.
    fn elements(&self) -> usize {
        match self {
            Self::Object(values) | Self::U8(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::Int8 { values, .. } => values.len(),
            Self::I32(values) => values.len(),
            Self::Tensors(tensors) => tensors.iter().map(Self::elements).sum(),
        }
    }
}

/// Decodes the concatenated `tensors`.
fn read_tensors(tensors: &[RowValue<'_>], into: &mut [f32]) -> bool {
    let mut rest = into;
    for tensor in tensors {
        let Some((own, after)) = rest.split_at_mut_checked(tensor.elements()) else {
            return false;
        };
        let is_read = match tensor {
            RowValue::U8(values) => widen(values, own, f32::from),
            tensor => tensor.read_into(own),
        };
        if !is_read {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn widen<T: Copy>(values: &[T], into: &mut [f32], widened: impl Fn(T) -> f32) -> bool {
    for (to, value) in into.iter_mut().zip(values) {
        *to = widened(*value);
    }
    values.len() == into.len()
}

fn read_int8(values: &[i8], scales: &[f32], offsets: &[f32], into: &mut [f32]) -> bool {
    let Some(slice) = values.len().checked_div(scales.len()).filter(|&slice| slice > 0) else {
        return false;
    };
    let fits = values.len() == into.len() && scales.len() == offsets.len();
    if !fits || slice * scales.len() != values.len() {
        return false;
    }
    let affines = scales
        .iter()
        .zip(offsets)
        .map(|(&scale, &offset)| Affine { scale, offset });
    values
        .chunks_exact(slice)
        .zip(into.chunks_exact_mut(slice))
        .zip(affines)
        .all(|((values, into), affine)| dequantize(values, affine, into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slice_has_its_own_scale() {
        let row = RowValue::Int8 {
            values: &[-128, -127, 127, -128, 0, 127],
            scales: &[0.5, 2.0],
            offsets: &[1.0, -3.0],
        };
        let mut into = [0.0; 6];
        assert!(row.read_into(&mut into));
        assert_eq!(into, [1.0, 1.5, 128.5, -3.0, 253.0, 507.0]);
        assert_eq!(row.byte_len(), 6 + 16);
    }

    #[test]
    fn other_lengths_and_kinds_are_refused() {
        let mut into = [0.0; 2];
        let refused = [
            RowValue::Object(&[1, 2]),
            RowValue::U8(&[1, 2]),
            RowValue::F32(&[1.0]),
            RowValue::F16(&[f16::ONE; 3]),
            RowValue::Int8 {
                values: &[1, 2],
                scales: &[1.0; 3],
                offsets: &[0.0; 3],
            },
            RowValue::Int8 {
                values: &[1, 2],
                scales: &[],
                offsets: &[],
            },
        ];
        for row in refused {
            assert!(!row.read_into(&mut into), "{row:?}");
        }
        assert!(RowValue::F16(&[f16::ONE; 2]).read_into(&mut into));
        assert_eq!(into, [1.0; 2]);
    }

    #[test]
    fn tensors_are_decoded_one_after_the_other() {
        let row = RowValue::Tensors(vec![
            RowValue::F16(&[f16::ONE; 2]),
            RowValue::I32(&[-100_000, 7]),
            RowValue::U8(&[255]),
        ]);
        let mut into = [0.0; 5];
        assert!(row.read_into(&mut into));
        assert_eq!(into, [1.0, 1.0, -100_000.0, 7.0, 255.0]);
        assert_eq!(row.byte_len(), 4 + 8 + 1);
        assert!(!row.read_into(&mut [0.0; 4]) && !row.read_into(&mut [0.0; 6]));
        assert!(!RowValue::Tensors(vec![RowValue::Object(&[1])]).read_into(&mut [0.0]));
    }
}
