use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Maximum size of a message in bytes. Messages contain names and texts, while tensors use the window. Real
/// tensor names are far below this limit.
pub(super) const MESSAGE_BYTES: usize = 1 << 20;

/// Timeout for sending. A process reads continuously unless stopped by a signal.
const SEND_LIMIT: Duration = Duration::from_secs(5);

/// Sends and receives messages on a socket. A message is a length (4 bytes, little-endian) followed by JSON.
pub(super) struct Channel {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> Result<Self> {
        stream.set_write_timeout(Some(SEND_LIMIT))?;
        Ok(Self {
            stream,
            received: Vec::new(),
        })
    }

    /// Returns another handle to the same socket, for sending from another thread.
    pub(super) fn sender(&self) -> Result<Self> {
        Self::new(self.stream.try_clone()?)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] and sends nothing if the message exceeds [`MESSAGE_BYTES`].
    pub(super) fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).ok();
        let length = length.filter(|_| body.len() <= MESSAGE_BYTES).ok_or_else(|| {
            let text = format!(
                "a message has {} bytes, but the limit is {MESSAGE_BYTES}",
                body.len()
            );
            Error::new(ErrorKind::InvalidInput, text)
        })?;
        let frame = [&length.to_le_bytes()[..], body.as_slice()].concat();
        self.stream.write_all(&frame).map_err(as_closed)
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// Returns [`ErrorKind::UnexpectedEof`] if the other end was closed.
    pub(super) fn receive<M: DeserializeOwned>(&mut self) -> Result<M> {
        loop {
            if let Some(message) = self.next_message()? {
                return Ok(message);
            }
            self.fill()?;
        }
    }

    /// Returns the next message if it was received completely.
    pub(super) fn next_message<M: DeserializeOwned>(&mut self) -> Result<Option<M>> {
        let Some((length, rest)) = self.received.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MESSAGE_BYTES {
            let text = format!("the announced message of {length} bytes exceeds the limit");
            return Err(Error::new(ErrorKind::InvalidData, text));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(body)?;
        self.received.drain(..4 + length);
        Ok(Some(message))
    }

    /// Waits for data and appends it to the receive buffer.
    pub(super) fn fill(&mut self) -> Result<()> {
        let mut bytes = [0; 4096];
        let count = match self.stream.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            read => read.map_err(as_closed)?,
        };
        self.received.extend_from_slice(bytes.get(..count).unwrap_or(&[]));
        Ok(())
    }
}

/// Converts the system's errors for a closed connection to [`ErrorKind::UnexpectedEof`].
fn as_closed(error: Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ErrorKind::UnexpectedEof.into(),
        _ => error,
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Channel::new(ours).unwrap(), theirs)
    }

    #[test]
    fn messages_arrive_whole_however_they_are_cut() {
        let (mut channel, mut other) = pair();
        let body = br#"["a","b"]"#;
        let mut frame = 9_u32.to_le_bytes().to_vec();
        frame.extend_from_slice(body);
        for byte in frame.iter().chain(&frame) {
            other.write_all(&[*byte]).unwrap();
        }
        for _ in 0..2 {
            let message: Vec<String> = channel.receive().unwrap();
            assert_eq!(message, ["a", "b"]);
        }
        drop(other);
        let gone = channel.receive::<String>().unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn invalid_messages_are_errors() {
        for bytes in [&b"\xff\xff\xff\xff"[..], b"\x02\0\0\0{]", b"\x04\0\0\0null"] {
            let (mut channel, mut other) = pair();
            other.write_all(bytes).unwrap();
            assert!(channel.receive::<String>().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_message_that_is_too_large_is_not_sent() {
        let (mut channel, other) = pair();
        let refused = channel.send(&"x".repeat(MESSAGE_BYTES)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        channel.send(&"small").unwrap();
        let received: String = Channel::new(other).unwrap().receive().unwrap();
        assert_eq!(received, "small");
    }
}
