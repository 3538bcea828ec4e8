//! Encoder from rows to Arrow IPC streams.

use crate::columns::{columns, null_row};
use crate::rows::{code_of, error_fields};
use crate::{ActivationBatch, Compression, FrameError, RowFormat, Values};
use arrow_array::{
    ArrayRef, LargeBinaryArray, RecordBatch, StringArray, StructArray, UInt32Array, UInt64Array,
    new_null_array,
};
use arrow_buffer::{Buffer, OffsetBuffer};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamEncoder};
use arrow_schema::{ArrowError, DataType, Schema};
use bytes::Bytes;
use frostline_tensor::{Data, OpError, Tensor};
use std::sync::Arc;

/// Compression level of Zstandard. Level 3, which is Arrow's default, needs up to twice the time for
/// SqueezeNet's activations and reduces their size by less than 2 %.
const ZSTD_LEVEL: i32 = 1;

/// Writer for the answer of an extraction. All methods return the next bytes of the body as a list of pieces.
/// Without compression, the elements of f32 and u8 tensors are not copied but returned as a separate piece.
pub struct ActivationWriter {
    format: RowFormat,
    schema: Arc<Schema>,
    encoder: StreamEncoder,
    /// Blank elements for failed rows. Created once and shared.
    blank: Option<Vec<ArrayRef>>,
}

/// Failed sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFailure {
    /// Position of the sample in the request.
    pub position: u32,
    /// Error of the sample.
    pub error: OpError,
}

impl ActivationWriter {
    /// Creates a writer for rows of `format`.
    ///
    /// # Errors
    /// Returns [`FrameError::Format`] if Arrow does not support the shape.
    pub fn new(format: RowFormat, compression: Compression) -> Result<Self, FrameError> {
        let schema = Arc::new(format.schema()?);
        let encoder = options(compression)
            .and_then(|options| StreamEncoder::try_new_with_options(&schema, options))
            .map_err(FrameError::encode)?;
        Ok(Self {
            format,
            schema,
            encoder,
            blank: None,
        })
    }

    /// Writes a batch of rows with their `positions`. A row with a single `u8` tensor requires a `u8` tensor. All other
    /// formats require an `f32` tensor, which this method encodes.
    ///
    /// # Errors
    /// Returns [`FrameError::Rows`] if the type, row shape or number of rows is unexpected.
    pub fn tensor(&mut self, positions: &[u32], rows: Tensor) -> Result<Vec<Bytes>, FrameError> {
        self.check_rows(positions, &rows)?;
        let values = columns(&self.format, rows.into_data())?;
        self.batch(positions, values, None)
    }

    /// Writes raw objects with their positions. A single object is not copied. Multiple objects are copied to
    /// a common buffer.
    ///
    /// # Errors
    /// Returns [`FrameError::Rows`] if the format is not [`RowFormat::Object`].
    pub fn objects(&mut self, rows: &[(u32, Bytes)]) -> Result<Vec<Bytes>, FrameError> {
        if self.format != RowFormat::Object {
            return Err(self.mismatch("object bytes".to_owned()));
        }
        let positions: Vec<u32> = rows.iter().map(|(position, _)| *position).collect();
        let values = match rows {
            [(_, bytes)] => Buffer::from(bytes.clone()),
            rows => {
                let mut joined = Vec::with_capacity(rows.iter().map(|(_, bytes)| bytes.len()).sum());
                rows.iter().for_each(|(_, bytes)| joined.extend_from_slice(bytes));
                Buffer::from_vec(joined)
            }
        };
        let offsets = OffsetBuffer::<i64>::from_lengths(rows.iter().map(|(_, bytes)| bytes.len()));
        let activation = LargeBinaryArray::try_new(offsets, values, None);
        let activation: ArrayRef = Arc::new(activation.map_err(FrameError::encode)?);
        self.batch(&positions, vec![activation], None)
    }

    /// Writes failed samples. Each failure is a separate record batch, so all of them can share the blank
    /// elements required by Arrow's layout.
    ///
    /// # Errors
    /// Returns [`FrameError::Encode`] if Arrow fails.
    pub fn failures(&mut self, failures: &[RowFailure]) -> Result<Vec<Bytes>, FrameError> {
        let mut pieces = Vec::new();
        for failure in failures {
            let values = self.blank_row()?;
            let columns = vec![
                text_column(&code_of(&failure.error)),
                text_column(&failure.error.message),
            ];
            let error = StructArray::try_new(error_fields(), columns, None).map_err(FrameError::encode)?;
            pieces.extend(self.batch(&[failure.position], values, Some(Arc::new(error)))?);
        }
        Ok(pieces)
    }

    /// Ends the stream with Arrow's marker. Answers without the marker are incomplete, so drop the writer if
    /// the request fails.
    ///
    /// # Errors
    /// Returns [`FrameError::Encode`] if Arrow fails.
    pub fn finish(self) -> Result<Vec<Bytes>, FrameError> {
        let pieces = self.encoder.finish().map_err(FrameError::encode)?;
        Ok(pieces.into_iter().map(Bytes::from).collect())
    }

    fn check_rows(&self, positions: &[u32], rows: &Tensor) -> Result<(), FrameError> {
        let shape = rows.shape().dims();
        let fits = self.format.shape().is_some_and(|row| {
            shape
                .split_first()
                .is_some_and(|(&count, rest)| count == positions.len() && *rest == *row)
        });
        let typed = match &self.format {
            RowFormat::Object => false,
            RowFormat::Tensor(Values::U8, _) => matches!(rows.data(), Data::U8(_)),
            RowFormat::Tensor(..) | RowFormat::Tensors(_) => matches!(rows.data(), Data::F32(_)),
        };
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

    fn blank_row(&mut self) -> Result<Vec<ArrayRef>, FrameError> {
        if self.blank.is_none() {
            self.blank = Some(null_row(&self.format)?);
        }
        Ok(self.blank.clone().unwrap_or_default())
    }

    fn batch(
        &mut self,
        positions: &[u32],
        values: Vec<ArrayRef>,
        error: Option<ArrayRef>,
    ) -> Result<Vec<Bytes>, FrameError> {
        if positions.is_empty() {
            return Ok(Vec::new());
        }
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(positions.to_vec()))];
        columns.extend(values);
        columns.push(
            error.unwrap_or_else(|| new_null_array(&DataType::Struct(error_fields()), positions.len())),
        );
        let batch = ActivationBatch::new(&self.format, &columns)?;
        columns.push(Arc::new(UInt64Array::from_iter_values(batch.checksums())));
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(FrameError::encode)?;
        let pieces = self.encoder.encode(&batch).map_err(FrameError::encode)?;
        Ok(pieces
            .into_iter()
            .map(Bytes::from)
            .filter(|piece| !piece.is_empty())
            .collect())
    }
}

fn options(compression: Compression) -> Result<IpcWriteOptions, ArrowError> {
    let options = IpcWriteOptions::default();
    match compression {
        Compression::None => Ok(options),
        Compression::Lz4 => options.try_with_compression(Some(CompressionType::LZ4_FRAME)),
        Compression::Zstd => options
            .try_with_compression(Some(CompressionType::ZSTD))?
            .try_with_compression_level(Some(ZSTD_LEVEL)),
    }
}

fn text_column(text: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![text]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_elements_of_a_tensor_are_not_copied() {
        let tensor = Tensor::f32([2, 1024], vec![1.5; 2048]).unwrap();
        let address = tensor.as_bytes().as_ptr();
        let mut writer =
            ActivationWriter::new(RowFormat::Tensor(Values::F32, vec![1024]), Compression::None).unwrap();
        let pieces = writer.tensor(&[4, 9], tensor).unwrap();
        assert!(
            pieces
                .iter()
                .any(|piece| piece.as_ptr() == address && piece.len() == 8192)
        );
    }

    #[test]
    fn an_object_alone_is_not_copied() {
        let object = Bytes::from(vec![7; 8192]);
        let mut writer = ActivationWriter::new(RowFormat::Object, Compression::None).unwrap();
        let pieces = writer.objects(&[(4, object.clone())]).unwrap();
        assert!(pieces.iter().any(|piece| piece.as_ptr() == object.as_ptr()));
    }

    #[test]
    fn failed_rows_share_their_blank_elements() {
        let mut writer =
            ActivationWriter::new(RowFormat::Tensor(Values::U8, vec![4096]), Compression::None).unwrap();
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
        let mut writer =
            ActivationWriter::new(RowFormat::Tensor(Values::F32, vec![4]), Compression::None).unwrap();
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
