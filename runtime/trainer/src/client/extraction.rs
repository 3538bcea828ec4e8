use super::transport::Transport;
use super::{ByteMeter, ClientError};
use frostline_wire::{ARROW_STREAM, ActivationBatch, ActivationReader, Compression, FrameError, RowFormat};
use http::Response;
use http::header::CONTENT_TYPE;
use hyper::body::Incoming;
use std::sync::Arc;

/// The answer of one extraction while it arrives. Dropping it closes the stream, and the host ends the work.
pub struct ExtractionStream {
    transport: Arc<Transport>,
    body: Incoming,
    reader: Option<ActivationReader>,
    meter: ByteMeter,
}

impl ExtractionStream {
    pub(super) fn new(
        transport: Arc<Transport>,
        response: Response<Incoming>,
        format: RowFormat,
        compression: Compression,
        positions: Vec<u32>,
        message_limit: usize,
        meter: ByteMeter,
    ) -> Result<Self, ClientError> {
        let media_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        if media_type != Some(ARROW_STREAM) {
            let actual = media_type.unwrap_or("none");
            return Err(transport.protocol(format!("an extraction's answer of type '{actual}'")));
        }
        let reader = ActivationReader::new(format, positions, message_limit);
        let reader = Some(reader.compressed(compression));
        Ok(Self {
            transport,
            body: response.into_body(),
            reader,
            meter,
        })
    }

    /// The next rows, `None` once every position was answered and the stream ended as it should.
    ///
    /// # Errors
    /// [`ClientError::Silent`], [`ClientError::Interrupted`] for a stream that broke or ended early,
    /// [`ClientError::Protocol`] for bytes that are no such stream. Rows that came before are good.
    pub async fn next(&mut self) -> Result<Option<Vec<ActivationBatch>>, ClientError> {
        loop {
            let Some(reader) = &mut self.reader else {
                return Ok(None);
            };
            match self.transport.chunk(&mut self.body, &self.meter).await? {
                Some(chunk) => {
                    let batches = reader
                        .push(chunk)
                        .map_err(|error| self.transport.protocol(error.to_string()))?;
                    if !batches.is_empty() {
                        return Ok(Some(batches));
                    }
                }
                None => return self.finish(),
            }
        }
    }

    fn finish(&mut self) -> Result<Option<Vec<ActivationBatch>>, ClientError> {
        match self.reader.take().map(ActivationReader::finish) {
            None | Some(Ok(())) => Ok(None),
            Some(Err(error @ FrameError::Incomplete { .. })) => {
                Err(self.transport.interrupted(error.to_string()))
            }
            Some(Err(error)) => Err(self.transport.protocol(error.to_string())),
        }
    }
}
