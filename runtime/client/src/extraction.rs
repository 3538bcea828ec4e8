use crate::ClientError;
use crate::blocking::blocking;
use crate::transport::Answer;
use bytes::Bytes;
use frostline_wire::{
    ARROW_STREAM, ActivationBatch, ActivationReader, COMPUTED_PRECISION, FrameError, JobStage, Precision,
    StageSeconds,
};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use hyper::body::Frame;
use std::time::Duration;

/// Progress of an answer.
pub(crate) enum AnswerStep {
    Rows(Vec<ActivationBatch>),
    /// Some bytes arrived, but no complete rows.
    Bytes,
    /// All positions were answered and the stream ended properly.
    End,
}

/// Streaming answer to an extraction. Dropping this value closes the stream, and the host cancels the work.
pub struct ExtractionStream {
    answer: Answer,
    /// Decoder of the answer. `None` after the end, and while it runs on a blocking thread. If the caller drops the
    /// pending read, the decoder is not returned.
    reader: Option<Box<ActivationReader>>,
    has_ended: bool,
    timing: HostTiming,
}

impl ExtractionStream {
    pub(crate) fn new(answer: Answer, reader: ActivationReader) -> Result<Self, ClientError> {
        let media_type = answer.header(CONTENT_TYPE.as_str());
        if media_type != Some(ARROW_STREAM) {
            let actual = media_type.unwrap_or("none");
            let reason = format!("an extraction answer with content type '{actual}'");
            return Err(answer.peer().protocol(reason));
        }
        Ok(Self {
            answer,
            reader: Some(Box::new(reader)),
            has_ended: false,
            timing: HostTiming::default(),
        })
    }

    /// Returns the precision in which the host computes the layers. `None` if the request permits only full
    /// precision, or if the host does not report it.
    pub fn precision(&self) -> Option<Precision> {
        self.answer.header(COMPUTED_PRECISION)?.parse().ok()
    }

    /// Returns the next rows, or `None` once every position was answered and the stream ended properly.
    ///
    /// # Errors
    /// Returns [`ClientError::Silent`] on a timeout, [`ClientError::Interrupted`] if the stream broke or
    /// ended early, and [`ClientError::Protocol`] if the bytes are not a valid stream. Rows returned before
    /// the error are valid.
    pub async fn next(&mut self) -> Result<Option<Vec<ActivationBatch>>, ClientError> {
        loop {
            match self.step().await? {
                AnswerStep::Rows(batches) => return Ok(Some(batches)),
                AnswerStep::Bytes => {}
                AnswerStep::End => return Ok(None),
            }
        }
    }

    /// Like [`ExtractionStream::next`], but returns after every piece of the answer.
    pub(crate) async fn step(&mut self) -> Result<AnswerStep, ClientError> {
        if self.has_ended {
            return Ok(AnswerStep::End);
        }
        let frame = self.answer.frame().await?;
        match frame.map(Frame::into_data) {
            Some(Err(frame)) => {
                let timing = frame.into_trailers().ok().as_ref().and_then(HostTiming::read);
                self.timing = timing.unwrap_or_default();
                Ok(AnswerStep::Bytes)
            }
            Some(Ok(chunk)) => {
                let batches = self.read(chunk).await?;
                Ok(if batches.is_empty() {
                    AnswerStep::Bytes
                } else {
                    AnswerStep::Rows(batches)
                })
            }
            None => self.finish(),
        }
    }

    /// Returns the seconds in each stage of the host, as reported for this answer. All values are zero before
    /// the end of the stream.
    pub fn stages(&self) -> StageSeconds {
        self.timing.stages
    }

    /// Returns the time that the host reports for this answer. All values are zero before the end of the
    /// stream.
    pub(crate) fn timing(&self) -> HostTiming {
        self.timing
    }

    /// Passes the next bytes to the decoder. Decompression and checksum verification run on a blocking
    /// thread. The number of threads is bounded by the number of open requests.
    async fn read(&mut self, chunk: Bytes) -> Result<Vec<ActivationBatch>, ClientError> {
        let mut reader = self.take_reader()?;
        let (reader, read) = if reader.may_complete_batch(chunk.len()) {
            blocking("decoding of an answer", move || {
                let read = reader.push(chunk);
                (reader, read)
            })
            .await?
        } else {
            let read = reader.push(chunk);
            (reader, read)
        };
        self.reader = Some(reader);
        read.map_err(|error| self.answer.peer().protocol(error))
    }

    fn take_reader(&mut self) -> Result<Box<ActivationReader>, ClientError> {
        let part = "decoding of an answer";
        self.reader.take().ok_or(ClientError::Ended { part })
    }

    fn finish(&mut self) -> Result<AnswerStep, ClientError> {
        let reader = self.take_reader()?;
        self.has_ended = true;
        match reader.finish() {
            Ok(()) => Ok(AnswerStep::End),
            Err(error @ FrameError::Incomplete { .. }) => Err(self.answer.peer().interrupted(error)),
            Err(error) => Err(self.answer.peer().protocol(error)),
        }
    }
}

/// Time spent on an answer, as reported by the host.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct HostTiming {
    /// Duration of the host's work. The remaining time was spent in transit.
    pub(crate) work: Duration,
    /// Time per stage of image processing.
    pub(crate) stages: StageSeconds,
}

impl HostTiming {
    /// Parses a `server-timing` trailer (`work;dur=<milliseconds>, read;dur=<milliseconds>`). Missing or
    /// malformed metrics count as zero. Returns `None` if the trailer is missing.
    fn read(trailers: &HeaderMap) -> Option<Self> {
        let value = trailers.get("server-timing")?.to_str().ok()?;
        let mut timing = Self {
            work: duration(value, "work").unwrap_or_default(),
            ..Self::default()
        };
        for stage in JobStage::all() {
            let time = duration(value, stage.into()).unwrap_or_default();
            *timing.stages.seconds_in_mut(stage) = time.as_secs_f64();
        }
        Some(timing)
    }
}

/// Returns the duration of the metric `name` in a `server-timing` value.
fn duration(value: &str, name: &str) -> Option<Duration> {
    let metrics = value.split(',').map(str::trim);
    let mut durations = metrics.filter_map(|metric| metric.strip_prefix(name)?.strip_prefix(";dur="));
    let milliseconds = durations.next()?.parse::<f64>().ok()?;
    Duration::try_from_secs_f64(milliseconds / 1e3).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn the_hosts_work_is_read_from_its_trailer() {
        let of = |value: &'static str| {
            let header = ("server-timing".parse().unwrap(), HeaderValue::from_static(value));
            HostTiming::read(&HeaderMap::from_iter([header])).unwrap()
        };
        assert_eq!(of("work;dur=1500.250").work, Duration::from_micros(1_500_250));
        let timing = of("cache;dur=1, work;dur=2, decode;dur=250.5, run;dur=x");
        let stages = StageSeconds {
            decode: 0.2505,
            ..StageSeconds::default()
        };
        assert_eq!((timing.work, timing.stages), (Duration::from_millis(2), stages));
        for nothing in ["work;dur=-1", "work;dur=nan", "cache;dur=1", ""] {
            assert_eq!(of(nothing), HostTiming::default(), "{nothing}");
        }
    }
}
