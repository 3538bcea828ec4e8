//! Incremental parser for the framing of Arrow IPC streams. Messages contain `FFFFFFFF`, the metadata length,
//! metadata and body. A length of 0 ends the stream. This crate does not use arrow's stream decoder, because
//! it accepts the end of the input after any batch, uses the sender's schema, and allocates memory based on
//! unverified lengths.

use crate::FrameError;
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::root_as_message;
use bytes::{Buf, Bytes};

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

enum State {
    Prefix {
        read: Vec<u8>,
    },
    Metadata {
        wanted: usize,
        read: Vec<u8>,
    },
    Body {
        metadata: Vec<u8>,
        wanted: usize,
        read: MutableBuffer,
    },
    Ended,
}

/// Splits a stream of chunks into messages.
pub(crate) struct Frames {
    state: State,
    body_limit: usize,
}

impl Frames {
    pub(crate) fn new(body_limit: usize) -> Self {
        Self {
            state: State::Prefix {
                read: Vec::with_capacity(PREFIX),
            },
            body_limit,
        }
    }

    /// Returns true if the end marker was received.
    pub(crate) fn ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Returns true if the next `bytes` bytes can complete a message.
    pub(crate) fn may_complete(&self, bytes: usize) -> bool {
        match &self.state {
            State::Body { wanted, read, .. } => wanted - read.len() <= bytes,
            State::Prefix { .. } | State::Metadata { .. } | State::Ended => true,
        }
    }

    /// Returns the next complete message, or `None` if all bytes of `chunk` were consumed.
    pub(crate) fn next(&mut self, chunk: &mut Bytes) -> Result<Option<Message>, FrameError> {
        loop {
            let state = std::mem::replace(&mut self.state, State::Ended);
            if matches!(state, State::Ended) && !chunk.is_empty() {
                return Err(FrameError::malformed("unexpected bytes after the end marker"));
            }
            let (state, message) = self.advance(state, chunk)?;
            self.state = state;
            if message.is_some() || chunk.is_empty() && !self.is_complete() {
                return Ok(message);
            }
        }
    }

    /// Returns true if the current part is complete, so the state can advance with an empty chunk.
    fn is_complete(&self) -> bool {
        match &self.state {
            State::Prefix { .. } | State::Ended => false,
            State::Metadata { wanted, read } => read.len() == *wanted,
            State::Body { wanted, read, .. } => read.len() == *wanted,
        }
    }

    fn advance(&self, state: State, chunk: &mut Bytes) -> Result<(State, Option<Message>), FrameError> {
        Ok(match state {
            State::Prefix { mut read } => {
                move_bytes(chunk, PREFIX - read.len(), |bytes| read.extend_from_slice(bytes));
                (
                    if read.len() < PREFIX {
                        State::Prefix { read }
                    } else {
                        after_prefix(&read)?
                    },
                    None,
                )
            }
            State::Metadata { wanted, mut read } => {
                move_bytes(chunk, wanted - read.len(), |bytes| read.extend_from_slice(bytes));
                (
                    if read.len() < wanted {
                        State::Metadata { wanted, read }
                    } else {
                        self.body(read)?
                    },
                    None,
                )
            }
            State::Body {
                metadata,
                wanted,
                mut read,
            } => {
                move_bytes(chunk, wanted - read.len(), |bytes| read.extend_from_slice(bytes));
                if read.len() < wanted {
                    (
                        State::Body {
                            metadata,
                            wanted,
                            read,
                        },
                        None,
                    )
                } else {
                    let message = Message {
                        metadata,
                        body: read.into(),
                    };
                    (
                        State::Prefix {
                            read: Vec::with_capacity(PREFIX),
                        },
                        Some(message),
                    )
                }
            }
            State::Ended => (State::Ended, None),
        })
    }

    fn body(&self, metadata: Vec<u8>) -> Result<State, FrameError> {
        let claimed = root_as_message(&metadata)
            .map_err(|error| FrameError::malformed(error.to_string()))?
            .bodyLength();
        let wanted =
            usize::try_from(claimed).map_err(|_| FrameError::malformed("the body length is negative"))?;
        if wanted > self.body_limit {
            return Err(FrameError::TooLarge {
                bytes: wanted as u64,
                limit: self.body_limit as u64,
            });
        }
        Ok(State::Body {
            metadata,
            wanted,
            read: MutableBuffer::with_capacity(wanted),
        })
    }
}

fn move_bytes(chunk: &mut Bytes, wanted: usize, mut keep: impl FnMut(&[u8])) {
    let count = wanted.min(chunk.len());
    if let Some(bytes) = chunk.get(..count) {
        keep(bytes);
    }
    chunk.advance(count);
}

fn after_prefix(prefix: &[u8]) -> Result<State, FrameError> {
    let length = prefix
        .split_first_chunk::<4>()
        .filter(|(marker, _)| **marker == CONTINUATION)
        .and_then(|(_, length)| length.first_chunk::<4>())
        .ok_or_else(|| FrameError::malformed("a message does not begin with FFFFFFFF"))?;
    let wanted = u32::from_le_bytes(*length) as usize;
    match wanted {
        0 => Ok(State::Ended),
        _ if wanted > METADATA_LIMIT => Err(FrameError::TooLarge {
            bytes: wanted as u64,
            limit: METADATA_LIMIT as u64,
        }),
        _ => Ok(State::Metadata {
            wanted,
            read: Vec::with_capacity(wanted),
        }),
    }
}
