//! Layout of a row's values on disk.

use crate::records::RECORD;
use crate::{FeatureError, Form, Row};
use frostline_wire::{RowFormat, TensorFormat, Values};
use half::f16;

/// Layout of the values of a row. Tensors follow each other without padding.
#[derive(Debug, Clone)]
pub(crate) struct RowLayout {
    tensors: Vec<TensorLayout>,
}

/// Layout of a tensor, or of a row with a single tensor.
#[derive(Debug, Clone, Copy)]
struct TensorLayout {
    elements: Elements,
    /// Number of values.
    values: usize,
}

/// Element type on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Elements {
    F32,
    F16,
    I32,
    U8,
}

impl Elements {
    const fn size(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 => 2,
            Self::U8 => 1,
        }
    }

    /// Returns true if a write followed by a read returns the same values, apart from rounding and the sign of zero.
    fn can_represent(self, values: &[f32]) -> bool {
        match self {
            Self::F32 => true,
            Self::F16 => !frostline_tensor::exceeds_f16(values),
            Self::I32 => values.iter().all(|value| (*value as i32) as f32 == *value),
            Self::U8 => values.iter().all(|value| f32::from(*value as u8) == *value),
        }
    }

    fn write(self, values: &[f32], bytes: &mut Vec<u8>) {
        match self {
            Self::F32 => bytes.extend_from_slice(bytemuck::cast_slice(values)),
            Self::F16 => bytes.extend_from_slice(bytemuck::cast_slice(&frostline_tensor::to_f16(values))),
            Self::I32 => bytes.extend(values.iter().flat_map(|value| (*value as i32).to_ne_bytes())),
            Self::U8 => bytes.extend(values.iter().map(|value| *value as u8)),
        }
    }

    fn read(self, bytes: &[u8], into: &mut [f32]) {
        match self {
            Self::F32 => widen(bytes, into, f32::from_ne_bytes),
            Self::F16 => widen(bytes, into, |half| f16::from_ne_bytes(half).to_f32()),
            Self::I32 => widen(bytes, into, |integer| i32::from_ne_bytes(integer) as f32),
            Self::U8 => widen(bytes, into, |[byte]| f32::from(byte)),
        }
    }
}

fn widen<const N: usize>(bytes: &[u8], into: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    let (elements, _) = bytes.as_chunks::<N>();
    for (to, element) in into.iter_mut().zip(elements) {
        *to = value(*element);
    }
}

impl Row {
    /// Returns the size of a row's values on disk in bytes.
    ///
    /// # Errors
    /// Returns [`FeatureError::Row`] if the row is empty or its size overflows.
    pub fn bytes(&self) -> Result<usize, FeatureError> {
        Ok(RowLayout::new(self)?.bytes())
    }

    /// Returns the disk space for `rows` rows and their index records in bytes.
    ///
    /// # Errors
    /// Returns [`FeatureError::Row`] if the row is empty or its size overflows.
    pub fn disk_bytes(&self, rows: u64) -> Result<u64, FeatureError> {
        let each = (self.bytes()? + RECORD) as u64;
        Ok(each.saturating_mul(rows))
    }
}

impl RowLayout {
    /// Returns the layout of `row`.
    ///
    /// # Errors
    /// Returns [`FeatureError::Row`] if the row is empty or its size overflows.
    pub(crate) fn new(row: &Row) -> Result<Self, FeatureError> {
        let values = row.values()?;
        let elements = match row.form {
            Form::F32 => Elements::F32,
            Form::F16 => Elements::F16,
        };
        let tensors = match Values::F32.rows_of(row.shape.clone(), &row.tensors) {
            RowFormat::Tensors(tensors) => tensors
                .iter()
                .map(|tensor| TensorLayout::new(tensor, elements))
                .collect(),
            RowFormat::Object | RowFormat::Tensor(..) => vec![TensorLayout { elements, values }],
        };
        Ok(Self { tensors })
    }

    /// Returns the number of values in a row.
    pub(crate) fn values(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.values).sum()
    }

    /// Returns the size of a row in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = self.tensors.iter();
        bytes.map(|tensor| tensor.values * tensor.elements.size()).sum()
    }

    /// Appends `values` to `bytes` in the format used on disk.
    pub(crate) fn write(&self, values: &[f32], bytes: &mut Vec<u8>) {
        let mut rest = values;
        for tensor in &self.tensors {
            let (own, after) = rest.split_at(tensor.values.min(rest.len()));
            tensor.elements.write(own, bytes);
            rest = after;
        }
    }

    /// Rounds `values` in the same way as a write followed by a read. Returns false and leaves them unchanged
    /// if the format cannot represent them.
    pub(crate) fn round(&self, values: &mut [f32]) -> bool {
        if self.is_exact() {
            return true;
        }
        let mut rest = &*values;
        for tensor in &self.tensors {
            let (own, after) = rest.split_at(tensor.values.min(rest.len()));
            if !tensor.elements.can_represent(own) {
                return false;
            }
            rest = after;
        }
        let mut bytes = Vec::with_capacity(self.bytes());
        self.write(values, &mut bytes);
        self.decode(&bytes, values);
        true
    }

    /// Returns true if all values are stored as `f32`.
    pub(crate) fn is_exact(&self) -> bool {
        self.tensors.iter().all(|tensor| tensor.elements == Elements::F32)
    }

    /// Decodes a row into `into`. `fill` copies the row's bytes to the given buffer.
    pub(crate) fn read<E>(
        &self,
        into: &mut [f32],
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.tensors.as_slice() {
            _ if self.is_exact() => fill(bytemuck::cast_slice_mut(into)),
            [tensor] if tensor.elements == Elements::F16 => {
                let mut halves = vec![f16::ZERO; into.len()];
                fill(bytemuck::cast_slice_mut(&mut halves))?;
                frostline_tensor::from_f16(&halves, into);
                Ok(())
            }
            _ => {
                let mut bytes = vec![0; self.bytes()];
                fill(&mut bytes)?;
                self.decode(&bytes, into);
                Ok(())
            }
        }
    }

    fn decode(&self, bytes: &[u8], into: &mut [f32]) {
        let mut bytes = bytes;
        let mut rest = into;
        for tensor in &self.tensors {
            let size = tensor.values * tensor.elements.size();
            let (own_bytes, bytes_after) = bytes.split_at(size.min(bytes.len()));
            let (own, after) = rest.split_at_mut(tensor.values.min(rest.len()));
            tensor.elements.read(own_bytes, own);
            bytes = bytes_after;
            rest = after;
        }
    }
}

impl TensorLayout {
    /// Returns the layout of a tensor. Floating-point values are stored as `elements`.
    fn new(tensor: &TensorFormat, elements: Elements) -> Self {
        Self {
            elements: match tensor.values {
                Values::I32 => Elements::I32,
                Values::U8 => Elements::U8,
                Values::F32 | Values::F16 | Values::Int8 => elements,
            },
            values: tensor.shape.iter().product(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_tensor::DType;
    use frostline_wire::TensorInfo;

    fn layout(form: Form) -> RowLayout {
        let tensor = |name: &str, dtype, values| TensorInfo {
            name: name.to_owned(),
            dtype,
            shape: vec![values],
        };
        let row = Row {
            shape: vec![6],
            form,
            tensors: vec![
                tensor("x", DType::F32, 2),
                tensor("ids", DType::I64, 2),
                tensor("mask", DType::U8, 2),
            ],
        };
        RowLayout::new(&row).unwrap()
    }

    fn read(layout: &RowLayout, bytes: &[u8]) -> Vec<f32> {
        let mut into = vec![0.0; layout.values()];
        let filled: Result<(), ()> = layout.read(&mut into, |to| {
            to.copy_from_slice(bytes);
            Ok(())
        });
        filled.unwrap();
        into
    }

    #[test]
    fn integers_are_exact_whatever_the_form_of_activations_is() {
        for (form, bytes, first) in [(Form::F32, 8 + 8 + 2, 2049.0), (Form::F16, 4 + 8 + 2, 2048.0)] {
            let layout = layout(form);
            assert_eq!((layout.values(), layout.bytes()), (6, bytes));
            let mut values = vec![2049.0, 0.5, 100_001.0, -7.0, 255.0, 1.0];
            let mut written = Vec::new();
            layout.write(&values, &mut written);
            assert_eq!(written.len(), bytes);
            let expected = [first, 0.5, 100_001.0, -7.0, 255.0, 1.0];
            assert_eq!(read(&layout, &written), expected);
            assert!(layout.round(&mut values));
            assert_eq!(values, expected);
        }
    }

    #[test]
    fn other_values_are_not_cached_and_stay_unchanged() {
        for values in [
            [1e6, 0.5, 1.0, 2.0, 3.0, 4.0],
            [2049.0, 0.5, 1.5, 2.0, 3.0, 4.0],
            [2049.0, 0.5, f32::NAN, 2.0, 3.0, 4.0],
            [2049.0, 0.5, 1.0, 2.0, 256.0, 4.0],
            [2049.0, 0.5, 1.0, 2.0, 3.0, -1.0],
        ] {
            let mut rounded = values;
            assert!(!layout(Form::F16).round(&mut rounded), "{values:?}");
            assert_eq!(rounded.map(f32::to_bits), values.map(f32::to_bits));
        }
    }
}
