use crate::ClientError;
use crate::blocking::blocking;
use crate::transport::Answer;
use bytes::Bytes;
use frostline_wire::{ARROW_STREAM, ActivationBatch, ActivationReader, FrameError, JobStage, StageSeconds};
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
    timing: HostTiming,
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
            timing: HostTiming::default(),
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
                let timing = frame.into_trailers().ok().as_ref().and_then(HostTiming::read);
                self.timing = timing.unwrap_or_default();
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

    /// What the host says at the end of the time this answer took.
    pub(crate) fn timing(&self) -> HostTiming {
        self.timing
    }

    /// Takes the next bytes. Batches are decompressed and checked on a thread that may take its time; an answer has one at most, so
    /// there are as many as requests are open.
    async fn read(&mut self, chunk: Bytes) -> Result<Vec<ActivationBatch>, ClientError> {
        let mut reader = self.take_reader()?;
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

    fn take_reader(&mut self) -> Result<Box<ActivationReader>, ClientError> {
        match std::mem::replace(&mut self.decoder, Decoder::Busy) {
            Decoder::Idle(reader) => Ok(reader),
            Decoder::Busy | Decoder::Done => Err(ClientError::Ended {
                part: "decoding of an answer",
            }),
        }
    }

    fn finish(&mut self) -> Result<Step, ClientError> {
        let reader = self.take_reader()?;
        self.decoder = Decoder::Done;
        match reader.finish() {
            Ok(()) => Ok(Step::End),
            Err(error @ FrameError::Incomplete { .. }) => Err(self.answer.peer().interrupted(error)),
            Err(error) => Err(self.answer.peer().protocol(error)),
        }
    }
}

/// What a host says at the end of an answer of the time it took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct HostTiming {
    /// How long it worked on the answer; the rest of the time went by on the way.
    pub(crate) work: Duration,
    /// Where the time of the answer's images went.
    pub(crate) stages: StageSeconds,
}

impl HostTiming {
    /// Of a `server-timing` trailer: `work;dur=<milliseconds>, read;dur=<milliseconds>`; what is missing or malformed is nothing.
    fn read(trailers: &HeaderMap) -> Option<Self> {
        let value = trailers.get("server-timing")?.to_str().ok()?;
        let seconds = |name: &str| {
            let metrics = value.split(',').map(str::trim);
            let mut durations = metrics.filter_map(|metric| metric.strip_prefix(name)?.strip_prefix(";dur="));
            let milliseconds = durations.next()?.parse::<f64>().ok()?;
            Duration::try_from_secs_f64(milliseconds / 1e3).ok()
        };
        let mut timing = Self {
            work: seconds("work").unwrap_or_default(),
            ..Self::default()
        };
        for stage in JobStage::all() {
            *timing.stages.seconds_in_mut(stage) = seconds(stage.into()).unwrap_or_default().as_secs_f64();
        }
        Some(timing)
    }
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
