use super::peer::Peer;
use crate::ClientError;
use crate::meter::ByteMeter;
use bytes::{Bytes, BytesMut};
use frostline_tensor::Cause;
use http::response::Parts;
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use std::sync::Arc;
use tracing::{Span, field};

/// An answer with a complete head. The body is read in pieces, each with a deadline, up to a size limit.
pub(crate) struct Answer {
    pub(super) head: Parts,
    pub(super) body: Incoming,
    pub(super) peer: Arc<Peer>,
    pub(super) meter: ByteMeter,
    /// Maximum size of the body in bytes.
    pub(super) limit: u64,
    /// Bytes read so far.
    pub(super) read: u64,
    /// The span closes with the answer.
    pub(super) span: Span,
}

impl Answer {
    /// Returns the text of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Reads the body as JSON. `path` is the path of the request, for error messages.
    pub(crate) async fn json<T: serde::de::DeserializeOwned>(self, path: &str) -> Result<T, ClientError> {
        let peer = Arc::clone(&self.peer);
        let bytes = self.whole().await?;
        serde_json::from_slice(&bytes).map_err(|error| peer.protocol(Cause::with_message(path, error)))
    }

    pub(crate) async fn whole(mut self) -> Result<Bytes, ClientError> {
        let peer = Arc::clone(&self.peer);
        let mut bytes = BytesMut::new();
        let reading = async {
            while let Some(chunk) = self.chunk().await? {
                bytes.extend_from_slice(&chunk);
            }
            Ok(bytes.freeze())
        };
        let deadline = peer.deadlines.answer;
        tokio::time::timeout(deadline, reading)
            .await
            .map_err(|_| peer.interrupted(format!("incomplete after {} s", deadline.as_secs())))?
    }

    /// Returns the next piece of the body, or `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.frame().await? {
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Returns the next piece of the body or the trailers, or `None` at the end.
    pub(crate) async fn frame(&mut self) -> Result<Option<Frame<Bytes>>, ClientError> {
        let frame = self.next_frame().await.inspect_err(|error| {
            self.span.record("error", field::display(error));
        })?;
        if let Some(data) = frame.as_ref().and_then(Frame::data_ref) {
            self.meter.add(data.len());
            self.read += data.len() as u64;
        }
        if self.read > self.limit {
            let reason = format!("an answer larger than {} bytes", self.limit);
            return Err(self.peer.protocol(reason));
        }
        Ok(frame)
    }

    async fn next_frame(&mut self) -> Result<Option<Frame<Bytes>>, ClientError> {
        let idle = self.peer.deadlines.idle;
        let frame = tokio::time::timeout(idle, self.body.frame())
            .await
            .map_err(|_| self.peer.silent("sending an answer", idle))?;
        frame.transpose().map_err(|error| self.peer.lost(&error))
    }
}
