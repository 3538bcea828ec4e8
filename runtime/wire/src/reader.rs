//! The bytes of an Arrow IPC stream, as they arrive, to rows.

use crate::frames::{Frames, Message};
use crate::unpacked::{Codec, unpacked};
use crate::{ActivationBatch, Compression, FrameError, RowFormat};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_ipc::{MessageHeader, MetadataVersion, RecordBatch as BatchHeader, root_as_message};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Reads the answer of one extraction. Trusts nothing in it: whatever the bytes say, the outcome is rows for positions
/// that were asked for, each once, or an error.
///
/// Memory: the bytes of the message being read (at most `message_limit`), as much again for its decompressed buffers where
/// they are compressed, plus what [`push`](Self::push) returned and the caller still holds.
pub struct ActivationReader {
    format: RowFormat,
    compression: Compression,
    message_limit: usize,
    frames: Frames,
    schema: Option<SchemaRef>,
    /// Whether its rows have checksums.
    checksums: bool,
    /// Whether each position asked for was answered.
    answered: BTreeMap<u32, bool>,
    outstanding: usize,
    /// Rows that were changed on the way; nobody knows for which positions they were.
    broken: usize,
}

impl ActivationReader {
    /// A reader for an answer of `format` with one row for each of `positions`. `message_limit` bounds the bytes of one
    /// record batch, as received and once decompressed: the most a batch of all positions could take is a good choice.
    pub fn new(format: RowFormat, positions: impl IntoIterator<Item = u32>, message_limit: usize) -> Self {
        let answered: BTreeMap<u32, bool> = positions.into_iter().map(|position| (position, false)).collect();
        let outstanding = answered.len();
        Self {
            format,
            compression: Compression::None,
            message_limit,
            frames: Frames::new(message_limit),
            schema: None,
            checksums: false,
            answered,
            outstanding,
            broken: 0,
        }
    }

    /// Lets batches be compressed so. Without this a compressed batch is refused.
    #[must_use]
    pub fn compressed(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Whether so many more bytes may complete a batch, for whose decoding [`push`](Self::push) takes as long as for decompressing
    /// and checking all of it. Of other bytes it keeps a copy.
    pub fn may_decode(&self, bytes: usize) -> bool {
        self.frames.may_complete(bytes)
    }

    /// Takes the next bytes of the body, cut anywhere, and returns the batches they complete.
    ///
    /// # Errors
    /// Any [`FrameError`] but `Incomplete`. The reader is of no use afterwards; [`missing`](Self::missing) still tells
    /// what to ask for again.
    pub fn push(&mut self, mut chunk: Bytes) -> Result<Vec<ActivationBatch>, FrameError> {
        let mut batches = Vec::new();
        while let Some(message) = self.frames.next(&mut chunk)? {
            batches.extend(self.message(&message)?);
        }
        Ok(batches)
    }

    /// To be called when the body has ended.
    ///
    /// # Errors
    /// [`FrameError::Incomplete`] when positions lack a row or the stream lacks its end marker. Rows that were changed on the way count as there.
    pub fn finish(self) -> Result<(), FrameError> {
        if self.outstanding == self.broken && self.frames.ended() {
            return Ok(());
        }
        Err(FrameError::Incomplete {
            missing: self.missing(),
            end_marker: self.frames.ended(),
        })
    }

    /// The positions that have no row yet, ascending.
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
                self.checksums = self.format.check(&schema)?;
                self.schema = Some(Arc::new(schema));
                Ok(None)
            }
            (Some(schema), MessageHeader::RecordBatch) => {
                let batch = header
                    .header_as_record_batch()
                    .ok_or_else(|| FrameError::malformed("an empty batch"))?;
                self.check_batch(&batch, &message.body)?;
                let batch = decode(message, batch, schema, header.version())?;
                let (checksums, columns) = match batch.columns().split_last() {
                    Some((checksums, columns)) if self.checksums => (Some(checksums), columns),
                    _ => (None, batch.columns()),
                };
                let batch = ActivationBatch::new(&self.format, columns, checksums)?;
                self.mark(&batch)?;
                Ok(Some(batch))
            }
            (_, other) => Err(FrameError::malformed(format!(
                "an unexpected message of type {other:?}"
            ))),
        }
    }

    /// Refuses what arrow's decoder would panic on or allocate without bound: buffers outside the body, not
    /// aligned or of broken elements, lengths beyond the rows there can be, buffers that would decompress to more than that.
    fn check_batch(&self, batch: &BatchHeader<'_>, body: &[u8]) -> Result<(), FrameError> {
        let missing = self.outstanding.saturating_sub(self.broken);
        let rows = usize::try_from(batch.length())
            .ok()
            .filter(|&rows| rows > 0 && rows <= missing);
        let rows = rows.ok_or_else(|| {
            FrameError::malformed(format!(
                "a batch of {} rows where {missing} are missing",
                batch.length()
            ))
        })?;
        let elements = rows.saturating_mul(self.format.width()?.unwrap_or(1));
        let length_fits = |length: i64| usize::try_from(length).is_ok_and(|length| length <= elements);
        let nodes = batch.nodes().into_iter().flatten();
        for node in nodes {
            if !length_fits(node.length()) || !(0..=node.length()).contains(&node.null_count()) {
                return Err(FrameError::malformed("a column longer than its batch"));
            }
        }
        self.check_buffers(batch, rows, body)
    }

    fn check_buffers(&self, batch: &BatchHeader<'_>, rows: usize, body: &[u8]) -> Result<(), FrameError> {
        let codec = Codec::for_batch(batch, self.compression)?;
        let buffers = batch.buffers().unwrap_or_default();
        let bounds = self.format.buffers(rows, self.checksums)?;
        if buffers.len() != bounds.len()
            || batch
                .variadicBufferCounts()
                .is_some_and(|counts| !counts.is_empty())
        {
            return Err(FrameError::malformed(
                "a batch with another number of buffers than its schema has",
            ));
        }
        let mut total = 0_usize;
        for (buffer, bound) in buffers.iter().zip(bounds) {
            let bytes = place(buffer.offset(), buffer.length()).and_then(|place| body.get(place));
            let size = bytes.and_then(|bytes| unpacked(bytes, codec));
            let Some(size) = size.filter(|size| size.is_multiple_of(bound.element)) else {
                return Err(FrameError::malformed("a buffer outside its message or unaligned"));
            };
            if size > bound.most {
                return Err(FrameError::malformed(format!(
                    "a buffer of {size} bytes where {rows} rows have at most {}",
                    bound.most
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

    fn mark(&mut self, batch: &ActivationBatch) -> Result<(), FrameError> {
        for row in batch.rows() {
            let position = match row {
                Ok(row) => row.position,
                Err(FrameError::Checksum { .. }) => {
                    self.broken += 1;
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

/// Where an aligned buffer lies in its body.
fn place(offset: i64, length: i64) -> Option<Range<usize>> {
    let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
    offset
        .is_multiple_of(8)
        .then_some(offset..offset.checked_add(length)?)
}

fn decode(
    message: &Message,
    batch: BatchHeader<'_>,
    schema: &SchemaRef,
    version: MetadataVersion,
) -> Result<arrow_array::RecordBatch, FrameError> {
    let dictionaries = HashMap::new();
    RecordBatchDecoder::try_new(&message.body, batch, Arc::clone(schema), &dictionaries, &version)
        .and_then(RecordBatchDecoder::read_record_batch)
        .map_err(FrameError::malformed)
}
