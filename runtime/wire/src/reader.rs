//! Incremental decoder from Arrow IPC streams to rows.

use crate::frames::{Frames, Message};
use crate::unpacked::{Codec, decompressed_size};
use crate::{ActivationBatch, Compression, FrameError, RowFormat};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::{MessageHeader, RecordBatch as BatchHeader, root_as_message};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Reader for the answer of an extraction. The answer is not trusted: for all inputs, the result is a single
/// row for each requested position, or an error.
///
/// The memory usage consists of the current message (up to `message_limit` bytes), the same amount for
/// decompressed buffers if batches are compressed, and batches returned by [`push`](Self::push).
pub struct ActivationReader {
    format: RowFormat,
    compression: Compression,
    message_limit: usize,
    frames: Frames,
    schema: Option<SchemaRef>,
    /// Requested positions. The value is true if the row was received.
    answered: BTreeMap<u32, bool>,
    outstanding: usize,
    /// Number of corrupted rows. The positions of these rows are unknown.
    corrupted: usize,
}

impl ActivationReader {
    /// Creates a reader for an answer in `format` with a row for each of `positions`. `message_limit` is the
    /// maximum number of bytes per record batch, both before and after decompression.
    /// [`RowFormat::message_bytes`] returns a suitable value.
    pub fn new(format: RowFormat, positions: impl IntoIterator<Item = u32>, message_limit: usize) -> Self {
        let answered: BTreeMap<u32, bool> = positions.into_iter().map(|position| (position, false)).collect();
        let outstanding = answered.len();
        Self {
            format,
            compression: Compression::None,
            message_limit,
            frames: Frames::new(message_limit),
            schema: None,
            answered,
            outstanding,
            corrupted: 0,
        }
    }

    /// Accepts batches with this compression. By default, compressed batches are rejected.
    #[must_use]
    pub fn compressed(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Returns true if the next `bytes` bytes can complete a batch, which [`push`](Self::push) then
    /// decompresses and checks. Otherwise, it only copies the bytes.
    pub fn may_complete_batch(&self, bytes: usize) -> bool {
        self.frames.may_complete(bytes)
    }

    /// Reads the next bytes of the body and returns completed batches. Chunks can have any size.
    ///
    /// # Errors
    /// Returns a [`FrameError`] other than `Incomplete` if the stream is invalid. After an error, only
    /// [`missing`](Self::missing) can be called.
    pub fn push(&mut self, mut chunk: Bytes) -> Result<Vec<ActivationBatch>, FrameError> {
        let mut batches = Vec::new();
        while let Some(message) = self.frames.next(&mut chunk)? {
            batches.extend(self.message(&message)?);
        }
        Ok(batches)
    }

    /// Checks that the answer is complete at the end of the body.
    ///
    /// # Errors
    /// Returns [`FrameError::Incomplete`] if positions or the end marker are missing. Corrupted rows are
    /// counted as received.
    pub fn finish(self) -> Result<(), FrameError> {
        if self.outstanding == self.corrupted && self.frames.ended() {
            return Ok(());
        }
        Err(FrameError::Incomplete {
            missing: self.missing(),
            end_marker: self.frames.ended(),
        })
    }

    /// Returns the positions without a row, ascending.
    pub fn missing(&self) -> Vec<u32> {
        self.answered
            .iter()
            .filter(|(_, answered)| !**answered)
            .map(|(position, _)| *position)
            .collect()
    }

    fn message(&mut self, message: &Message) -> Result<Option<ActivationBatch>, FrameError> {
        let header =
            root_as_message(&message.metadata).map_err(|error| FrameError::malformed(error.to_string()))?;
        match (&self.schema, header.header_type()) {
            (None, MessageHeader::Schema) => {
                let schema = header
                    .header_as_schema()
                    .ok_or_else(|| FrameError::malformed("an empty schema"))?;
                let schema = try_fb_to_schema(schema).map_err(FrameError::malformed)?;
                self.format.check(&schema)?;
                self.schema = Some(Arc::new(schema));
                Ok(None)
            }
            (Some(schema), MessageHeader::RecordBatch) => {
                let batch = header
                    .header_as_record_batch()
                    .ok_or_else(|| FrameError::malformed("an empty batch"))?;
                self.check_batch(&batch, &message.body)?;
                let schema = Arc::clone(schema);
                let dictionaries = HashMap::new();
                let version = header.version();
                let batch =
                    RecordBatchDecoder::try_new(&message.body, batch, schema, &dictionaries, &version)
                        .and_then(RecordBatchDecoder::read_record_batch)
                        .map_err(FrameError::malformed)?;
                let batch = ActivationBatch::received(&self.format, batch.columns())?;
                self.record_rows(&batch)?;
                Ok(Some(batch))
            }
            (_, other) => Err(FrameError::malformed(format!(
                "an unexpected message of type {other:?}"
            ))),
        }
    }

    /// Rejects batches for which arrow's decoder would panic or allocate unlimited memory. Such batches have
    /// buffers outside the body, unaligned or truncated buffers, lengths above the number of rows, or
    /// oversized buffers after decompression.
    fn check_batch(&self, batch: &BatchHeader<'_>, body: &[u8]) -> Result<(), FrameError> {
        let missing = self.outstanding.saturating_sub(self.corrupted);
        let rows = usize::try_from(batch.length())
            .ok()
            .filter(|&rows| rows > 0 && rows <= missing);
        let rows = rows.ok_or_else(|| {
            FrameError::malformed(format!(
                "a batch has {} rows, but only {missing} are missing",
                batch.length()
            ))
        })?;
        let elements = rows.saturating_mul(self.format.width()?.unwrap_or(1));
        let nodes = batch.nodes().into_iter().flatten();
        for node in nodes {
            let fits = usize::try_from(node.length()).is_ok_and(|length| length <= elements);
            if !fits || !(0..=node.length()).contains(&node.null_count()) {
                return Err(FrameError::malformed("a column is longer than the batch"));
            }
        }
        self.check_buffers(batch, rows, body)
    }

    fn check_buffers(&self, batch: &BatchHeader<'_>, rows: usize, body: &[u8]) -> Result<(), FrameError> {
        let codec = Codec::for_batch(batch, self.compression)?;
        let buffers = batch.buffers().unwrap_or_default();
        let bounds = self.format.buffers(rows)?;
        if buffers.len() != bounds.len()
            || batch
                .variadicBufferCounts()
                .is_some_and(|counts| !counts.is_empty())
        {
            return Err(FrameError::malformed(
                "the number of buffers does not match the schema",
            ));
        }
        let mut total = 0_usize;
        for (buffer, bound) in buffers.iter().zip(bounds) {
            let bytes = buffer_range(buffer.offset(), buffer.length()).and_then(|place| body.get(place));
            let size = bytes.and_then(|bytes| decompressed_size(bytes, codec));
            let Some(size) = size.filter(|size| size.is_multiple_of(bound.element)) else {
                return Err(FrameError::malformed(
                    "a buffer is outside the message or unaligned",
                ));
            };
            if size > bound.max_bytes {
                return Err(FrameError::malformed(format!(
                    "a buffer has {size} bytes, but for {rows} rows, the maximum is {}",
                    bound.max_bytes
                )));
            }
            total = total.saturating_add(size);
        }
        if total > self.message_limit {
            return Err(FrameError::TooLarge {
                bytes: total as u64,
                limit: self.message_limit as u64,
            });
        }
        Ok(())
    }

    fn record_rows(&mut self, batch: &ActivationBatch) -> Result<(), FrameError> {
        for row in batch.rows() {
            let position = match row {
                Ok(row) => row.position,
                Err(FrameError::Checksum { .. }) => {
                    self.corrupted += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            match self.answered.get_mut(&position) {
                None => return Err(FrameError::UnknownPosition { position }),
                Some(true) => return Err(FrameError::DuplicatePosition { position }),
                Some(answered) => *answered = true,
            }
            self.outstanding = self.outstanding.saturating_sub(1);
        }
        Ok(())
    }
}

/// Returns the range of an aligned buffer in the body.
fn buffer_range(offset: i64, length: i64) -> Option<Range<usize>> {
    let offset = usize::try_from(offset).ok()?;
    let length = usize::try_from(length).ok()?;
    offset
        .is_multiple_of(8)
        .then_some(offset..offset.checked_add(length)?)
}
