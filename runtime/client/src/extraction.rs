use crate::ClientError;
use crate::blocking::blocking;
use crate::transport::Answer;
use bytes::Bytes;
use frostline_wire::{ARROW_STREAM, ActivationBatch, ActivationReader, FrameError};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use hyper::body::Frame;
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

/// What decodes the answer.
enum Decoder {
    /// It waits for the next bytes.
    Idle(Box<ActivationReader>),
    /// It is on a thread of its own, and stays there when nobody waits for it any more.
    Busy,
    /// It is gone: the answer has ended.
    Done,
}

/// The answer of one extraction while it arrives. Dropping it closes the stream, and the host ends the work.
pub struct ExtractionStream {
    answer: Answer,
    decoder: Decoder,
    work: Option<Duration>,
}

impl ExtractionStream {
    pub(crate) fn new(answer: Answer, reader: ActivationReader) -> Result<Self, ClientError> {
        let media_type = answer.header(CONTENT_TYPE.as_str());
        if media_type != Some(ARROW_STREAM) {
            let actual = media_type.unwrap_or("none");
            let reason = format!("an extraction's answer of type '{actual}'");
            return Err(answer.peer().protocol(reason));
        }
        Ok(Self {
            answer,
            decoder: Decoder::Idle(Box::new(reader)),
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
        if matches!(self.decoder, Decoder::Done) {
            return Ok(Step::End);
        }
        let frame = self.answer.frame().await?;
        match frame.map(Frame::into_data) {
            Some(Err(frame)) => {
                self.work = frame.into_trailers().ok().as_ref().and_then(work);
                Ok(Step::Bytes)
            }
            Some(Ok(chunk)) => {
                let batches = self.read(chunk).await?;
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

    /// Takes the next bytes. Batches are decompressed and checked on a thread that may take its time; an answer has one at most, so
    /// there are as many as requests are open.
    async fn read(&mut self, chunk: Bytes) -> Result<Vec<ActivationBatch>, ClientError> {
        let mut reader = self.take()?;
        let (reader, read) = if reader.may_decode(chunk.len()) {
            let decode = move || {
                let read = reader.push(chunk);
                (reader, read)
            };
            blocking("decoding of an answer", decode).await?
        } else {
            let read = reader.push(chunk);
            (reader, read)
        };
        self.decoder = Decoder::Idle(reader);
        read.map_err(|error| self.answer.peer().protocol(error))
    }

    fn take(&mut self) -> Result<Box<ActivationReader>, ClientError> {
        match std::mem::replace(&mut self.decoder, Decoder::Busy) {
            Decoder::Idle(reader) => Ok(reader),
            Decoder::Busy | Decoder::Done => Err(ClientError::Ended {
                part: "decoding of an answer",
            }),
        }
    }

    fn finish(&mut self) -> Result<Step, ClientError> {
        let reader = self.take()?;
        self.decoder = Decoder::Done;
        match reader.finish() {
            Ok(()) => Ok(Step::End),
            Err(error @ FrameError::Incomplete { .. }) => Err(self.answer.peer().interrupted(error)),
            Err(error) => Err(self.answer.peer().protocol(error)),
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
