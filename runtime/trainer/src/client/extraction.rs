use super::transport::Transport;
use super::{ByteMeter, ClientError};
use frostline_wire::{ARROW_STREAM, ActivationBatch, ActivationReader, Compression, FrameError, RowFormat};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use hyper::body::{Frame, Incoming};
use std::sync::Arc;
use std::time::Duration;

/// What has come of an answer.
pub(crate) enum Step {
    /// Whole rows.
    Rows(Vec<ActivationBatch>),
    /// A sign of life: some bytes, but no whole rows yet.
    Bytes,
    /// Every position was answered, and the stream ended as it should.
    End,
}

/// The answer of one extraction while it arrives. Dropping it closes the stream, and the host ends the work.
pub struct ExtractionStream {
    transport: Arc<Transport>,
    body: Incoming,
    reader: Option<ActivationReader>,
    meter: ByteMeter,
    work: Option<Duration>,
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
            work: None,
        })
    }

    /// The next rows, `None` once every position was answered and the stream ended as it should.
    ///
    /// # Errors
    /// [`ClientError::Silent`], [`ClientError::Interrupted`] for a stream that broke or ended early,
    /// [`ClientError::Protocol`] for bytes that are no such stream. Rows that came before are good.
    pub async fn next(&mut self) -> Result<Option<Vec<ActivationBatch>>, ClientError> {
        loop {
            match self.step().await? {
                Step::Rows(batches) => return Ok(Some(batches)),
                Step::Bytes => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// [`ExtractionStream::next`], but comes back for every piece of the answer.
    pub(crate) async fn step(&mut self) -> Result<Step, ClientError> {
        let Some(reader) = &mut self.reader else {
            return Ok(Step::End);
        };
        let frame = self.transport.frame(&mut self.body, &self.meter).await?;
        match frame.map(Frame::into_data) {
            Some(Err(frame)) => {
                self.work = frame.into_trailers().ok().as_ref().and_then(work);
                Ok(Step::Bytes)
            }
            Some(Ok(chunk)) => {
                let batches = reader
                    .push(chunk)
                    .map_err(|error| self.transport.protocol(error.to_string()))?;
                Ok(if batches.is_empty() {
                    Step::Bytes
                } else {
                    Step::Rows(batches)
                })
            }
            None => self.finish(),
        }
    }

    /// How long the host worked on this answer, as it says at the end; the rest of the time went by on the way.
    pub fn work(&self) -> Option<Duration> {
        self.work
    }

    fn finish(&mut self) -> Result<Step, ClientError> {
        match self.reader.take().map(ActivationReader::finish) {
            None | Some(Ok(())) => Ok(Step::End),
            Some(Err(error @ FrameError::Incomplete { .. })) => {
                Err(self.transport.interrupted(error.to_string()))
            }
            Some(Err(error)) => Err(self.transport.protocol(error.to_string())),
        }
    }
}

/// The metric `work` of a `server-timing` trailer: `work;dur=<milliseconds>`.
fn work(trailers: &HeaderMap) -> Option<Duration> {
    let value = trailers.get("server-timing")?.to_str().ok()?;
    let mut metrics = value.split(',').map(str::trim);
    let milliseconds = metrics.find_map(|metric| metric.strip_prefix("work;dur="))?;
    Duration::try_from_secs_f64(milliseconds.parse::<f64>().ok()? / 1e3).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_hosts_work_is_read_from_its_trailer() {
        let of = |value: &'static str| {
            let header = ("server-timing".parse().unwrap(), HeaderValue::from_static(value));
            work(&HeaderMap::from_iter([header]))
        };
        assert_eq!(of("work;dur=1500.250"), Some(Duration::from_micros(1_500_250)));
        assert_eq!(of("cache;dur=1, work;dur=2"), Some(Duration::from_millis(2)));
        assert_eq!(of("work;dur=-1"), None);
        assert_eq!(of("work;dur=nan"), None);
        assert_eq!(of("cache;dur=1"), None);
    }
}
