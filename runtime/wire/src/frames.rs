//! Incremental parser for the framing of Arrow IPC streams. Messages contain `FFFFFFFF`, the metadata length,
//! metadata and body. A length of 0 ends the stream. This crate does not use arrow's stream decoder, because
//! it accepts the end of the input after any batch, uses the sender's schema, and allocates memory based on
//! unverified lengths.

use crate::FrameError;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::root_as_message;
use bytes::Bytes;

const CONTINUATION: [u8; 4] = [0xff; 4];
const PREFIX: usize = 8;

/// Maximum metadata size of a message in bytes. Schemas in this protocol have about 1 KB, and batches 600
/// bytes.
const METADATA_LIMIT: usize = 64 << 10;

/// Message with metadata (a flatbuffer) and body.
pub(crate) struct Message {
    pub(crate) metadata: Vec<u8>,
    pub(crate) body: Buffer,
}

/// Part of a message.
enum FramePart {
    Prefix,
    Metadata,
    /// Body of the message with this metadata.
    Body(Vec<u8>),
    Ended,
}

/// Splits a stream of chunks into messages.
pub(crate) struct Frames {
    part: FramePart,
    /// Size of the current part in bytes.
    wanted: usize,
    /// Received bytes of the current part.
    read: MutableBuffer,
    body_limit: usize,
}

impl Frames {
    pub(crate) fn new(body_limit: usize) -> Self {
        Self {
            part: FramePart::Prefix,
            wanted: PREFIX,
            read: MutableBuffer::with_capacity(PREFIX),
            body_limit,
        }
    }

    /// Returns true if the end marker was received.
    pub(crate) fn ended(&self) -> bool {
        matches!(self.part, FramePart::Ended)
    }

    /// Returns true if the next `bytes` bytes can complete a message.
    pub(crate) fn may_complete(&self, bytes: usize) -> bool {
        !matches!(self.part, FramePart::Body(_)) || self.wanted - self.read.len() <= bytes
    }

    /// Returns the next complete message, or `None` if all bytes of `chunk` were consumed.
    pub(crate) fn next(&mut self, chunk: &mut Bytes) -> Result<Option<Message>, FrameError> {
        while !self.ended() {
            let count = (self.wanted - self.read.len()).min(chunk.len());
            self.read.extend_from_slice(&chunk.split_to(count));
            if self.read.len() < self.wanted {
                return Ok(None);
            }
            match std::mem::replace(&mut self.part, FramePart::Ended) {
                FramePart::Prefix => {
                    let length = metadata_length(&self.read)?;
                    if length > 0 {
                        self.start(FramePart::Metadata, length);
                    }
                }
                FramePart::Metadata => {
                    let length = self.body_length()?;
                    let metadata = self.read.to_vec();
                    self.start(FramePart::Body(metadata), length);
                }
                FramePart::Body(metadata) => {
                    let body = self.start(FramePart::Prefix, PREFIX).into();
                    return Ok(Some(Message { metadata, body }));
                }
                FramePart::Ended => {}
            }
        }
        if chunk.is_empty() {
            return Ok(None);
        }
        Err(FrameError::malformed("unexpected bytes after the end marker"))
    }

    /// Starts a part of `length` bytes, and returns the bytes of the previous part.
    fn start(&mut self, part: FramePart, length: usize) -> MutableBuffer {
        self.part = part;
        self.wanted = length;
        std::mem::replace(&mut self.read, MutableBuffer::with_capacity(length))
    }

    /// Returns the size of the body according to the received metadata.
    fn body_length(&self) -> Result<usize, FrameError> {
        let claimed = root_as_message(&self.read)
            .map_err(|error| FrameError::malformed(error.to_string()))?
            .bodyLength();
        let length =
            usize::try_from(claimed).map_err(|_| FrameError::malformed("the body length is negative"))?;
        checked(length, self.body_limit)
    }
}

fn metadata_length(prefix: &[u8]) -> Result<usize, FrameError> {
    let length = prefix
        .split_first_chunk::<4>()
        .filter(|(marker, _)| **marker == CONTINUATION)
        .and_then(|(_, length)| length.first_chunk::<4>())
        .ok_or_else(|| FrameError::malformed("a message does not begin with FFFFFFFF"))?;
    checked(u32::from_le_bytes(*length) as usize, METADATA_LIMIT)
}

fn checked(length: usize, limit: usize) -> Result<usize, FrameError> {
    if length > limit {
        return Err(FrameError::TooLarge {
            bytes: length as u64,
            limit: limit as u64,
        });
    }
    Ok(length)
}
