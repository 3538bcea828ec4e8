//! Rows to the bytes of an Arrow IPC stream.

use crate::rows::error_fields;
use crate::{FrameError, RowFormat};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, LargeBinaryArray, PrimitiveArray, RecordBatch, StringArray,
    StructArray, UInt32Array, new_null_array, types::Float32Type, types::UInt8Type,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_ipc::writer::StreamEncoder;
use arrow_schema::{DataType, Schema};
use bytes::Bytes;
use frostline_tensor::{Data, OpError, Tensor};
use std::sync::Arc;

/// Writes the answer of one extraction. Every method returns the next bytes of the body, in pieces: the elements of a
/// tensor travel as the piece they already are, uncopied.
pub struct ActivationWriter {
    format: RowFormat,
    schema: Arc<Schema>,
    encoder: StreamEncoder,
    /// The unused elements under a failed row; made once, shared by all of them.
    blank: Option<ArrayRef>,
}

/// A sample that has no activation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFailure {
    /// The client's number for it.
    pub position: u32,
    /// Why.
    pub error: OpError,
}

impl ActivationWriter {
    /// A writer of rows of `format`.
    ///
    /// # Errors
    /// [`FrameError::Format`] for a shape Arrow cannot hold.
    pub fn new(format: RowFormat) -> Result<Self, FrameError> {
        let schema = Arc::new(format.schema()?);
        let encoder = StreamEncoder::try_new(&schema).map_err(FrameError::encode)?;
        Ok(Self {
            format,
            schema,
            encoder,
            blank: None,
        })
    }

    /// Writes the rows of a batch; `positions` names them in order. The tensor's elements are not copied.
    ///
    /// # Errors
    /// [`FrameError::Rows`] when type, row shape or number of rows differ from what was announced.
    pub fn tensor(&mut self, positions: &[u32], rows: Tensor) -> Result<Vec<Bytes>, FrameError> {
        self.check_rows(positions, &rows)?;
        let values: ArrayRef = match rows.into_data() {
            Data::F32(values) => Arc::new(PrimitiveArray::<Float32Type>::new(
                ScalarBuffer::from(values),
                None,
            )),
            Data::U8(values) => Arc::new(PrimitiveArray::<UInt8Type>::new(ScalarBuffer::from(values), None)),
            other => return Err(self.mismatch(other.dtype().to_string())),
        };
        let activation = self.list(values, None)?;
        self.batch(positions, activation, None)
    }

    /// Writes raw objects, each with its position. Their bytes are joined into one column buffer: one copy.
    ///
    /// # Errors
    /// [`FrameError::Rows`] when the answer is not one of objects.
    pub fn objects(&mut self, rows: &[(u32, Bytes)]) -> Result<Vec<Bytes>, FrameError> {
        if self.format != RowFormat::Object {
            return Err(self.mismatch("object bytes".to_owned()));
        }
        let positions: Vec<u32> = rows.iter().map(|(position, _)| *position).collect();
        let mut joined = Vec::with_capacity(rows.iter().map(|(_, bytes)| bytes.len()).sum());
        rows.iter().for_each(|(_, bytes)| joined.extend_from_slice(bytes));
        let offsets = OffsetBuffer::<i64>::from_lengths(rows.iter().map(|(_, bytes)| bytes.len()));
        let activation = LargeBinaryArray::try_new(offsets, Buffer::from_vec(joined), None);
        self.batch(
            &positions,
            Arc::new(activation.map_err(FrameError::encode)?),
            None,
        )
    }

    /// Writes the samples that failed, one record batch each, so that they all share the blank elements Arrow's layout
    /// wants under a null row.
    ///
    /// # Errors
    /// [`FrameError::Encode`] with Arrow's text.
    pub fn failures(&mut self, failures: &[RowFailure]) -> Result<Vec<Bytes>, FrameError> {
        let mut pieces = Vec::new();
        for failure in failures {
            let activation = self.blank_row()?;
            let column = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
            let columns = vec![column(failure.error.code.name()), column(&failure.error.message)];
            let error = StructArray::try_new(error_fields(), columns, None).map_err(FrameError::encode)?;
            pieces.extend(self.batch(&[failure.position], activation, Some(Arc::new(error)))?);
        }
        Ok(pieces)
    }

    /// Ends the stream with Arrow's marker. An answer without it is incomplete, so drop the writer when the request fails.
    ///
    /// # Errors
    /// [`FrameError::Encode`] with Arrow's text.
    pub fn finish(self) -> Result<Vec<Bytes>, FrameError> {
        let pieces = self.encoder.finish().map_err(FrameError::encode)?;
        Ok(pieces.into_iter().map(Bytes::from).collect())
    }

    fn check_rows(&self, positions: &[u32], rows: &Tensor) -> Result<(), FrameError> {
        let shape = rows.shape().dims();
        let fits = match &self.format {
            RowFormat::Object => false,
            RowFormat::F32(row) | RowFormat::U8(row) => shape
                .split_first()
                .is_some_and(|(&count, rest)| count == positions.len() && rest == row.as_slice()),
        };
        let typed = matches!(
            (&self.format, rows.data()),
            (RowFormat::F32(_), Data::F32(_)) | (RowFormat::U8(_), Data::U8(_))
        );
        if fits && typed {
            return Ok(());
        }
        Err(self.mismatch(format!("{} for {} positions", rows.describe(), positions.len())))
    }

    fn mismatch(&self, actual: String) -> FrameError {
        FrameError::Rows {
            expected: self.format.clone(),
            actual,
        }
    }

    fn list(&self, values: ArrayRef, nulls: Option<NullBuffer>) -> Result<ArrayRef, FrameError> {
        let DataType::FixedSizeList(field, width) = self.format.column_type()? else {
            return Err(self.mismatch("tensor rows".to_owned()));
        };
        let list = FixedSizeListArray::try_new(field, width, values, nulls).map_err(FrameError::encode)?;
        Ok(Arc::new(list))
    }

    fn blank_row(&mut self) -> Result<ArrayRef, FrameError> {
        if let Some(blank) = &self.blank {
            return Ok(Arc::clone(blank));
        }
        let blank = match (&self.format, self.format.width()?) {
            (RowFormat::F32(_), Some(width)) => {
                let zeros = PrimitiveArray::<Float32Type>::new(ScalarBuffer::from(vec![0.0; width]), None);
                self.list(Arc::new(zeros), Some(NullBuffer::new_null(1)))?
            }
            (RowFormat::U8(_), Some(width)) => {
                let zeros = PrimitiveArray::<UInt8Type>::new(ScalarBuffer::from(vec![0; width]), None);
                self.list(Arc::new(zeros), Some(NullBuffer::new_null(1)))?
            }
            _ => new_null_array(&DataType::LargeBinary, 1),
        };
        self.blank = Some(Arc::clone(&blank));
        Ok(blank)
    }

    fn batch(
        &mut self,
        positions: &[u32],
        activation: ArrayRef,
        error: Option<ArrayRef>,
    ) -> Result<Vec<Bytes>, FrameError> {
        if positions.is_empty() {
            return Ok(Vec::new());
        }
        let no_error = || new_null_array(&DataType::Struct(error_fields()), activation.len());
        let error = error.unwrap_or_else(no_error);
        let columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(positions.to_vec())), activation, error];
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(FrameError::encode)?;
        let pieces = self.encoder.encode(&batch).map_err(FrameError::encode)?;
        Ok(pieces
            .into_iter()
            .map(Bytes::from)
            .filter(|piece| !piece.is_empty())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_elements_of_a_tensor_are_not_copied() {
        let tensor = Tensor::f32([2, 1024], vec![1.5; 2048]).unwrap();
        let address = tensor.as_bytes().as_ptr();
        let mut writer = ActivationWriter::new(RowFormat::F32(vec![1024])).unwrap();
        let pieces = writer.tensor(&[4, 9], tensor).unwrap();
        assert!(
            pieces
                .iter()
                .any(|piece| piece.as_ptr() == address && piece.len() == 8192)
        );
    }

    #[test]
    fn failed_rows_share_their_blank_elements() {
        let mut writer = ActivationWriter::new(RowFormat::U8(vec![4096])).unwrap();
        let failure = |position| RowFailure {
            position,
            error: OpError::invalid("corrupt"),
        };
        let pieces = writer.failures(&[failure(0), failure(1)]).unwrap();
        let blanks: Vec<_> = pieces.iter().filter(|piece| piece.len() == 4096).collect();
        assert_eq!(blanks.len(), 2);
        assert_eq!(blanks[0].as_ptr(), blanks[1].as_ptr());
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let mut writer = ActivationWriter::new(RowFormat::F32(vec![4])).unwrap();
        let tensor = |shape: [usize; 2]| Tensor::f32(shape, vec![0.0; shape[0] * shape[1]]).unwrap();
        assert!(writer.tensor(&[0], tensor([2, 4])).is_err());
        assert!(writer.tensor(&[0], tensor([1, 5])).is_err());
        assert!(
            writer
                .tensor(&[0], Tensor::new([1, 4], Data::U8(vec![0; 4])).unwrap())
                .is_err()
        );
        assert!(writer.objects(&[(0, Bytes::new())]).is_err());
        assert!(writer.tensor(&[0], tensor([1, 4])).is_ok());
    }
}
