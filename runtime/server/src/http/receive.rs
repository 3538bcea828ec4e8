//! Bodies as they come in: bounded, and at a pace below which nobody waits for them.

use crate::config::Limits;
use crate::refusal::Refusal;
use axum::Error;
use axum::body::Body;
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http_body::Frame;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What a body is reserved first when it does not say how long it is.
const FIRST_RESERVE: usize = 1 << 20;

/// What must come of a body within the time it may stall, unless it ends: 4 KB/s for 60 s. Who sends a byte a minute would else keep what is
/// set aside for the whole for days.
const LEAST: u64 = 256 << 10;

/// How fast a body comes.
pub(super) struct Pace {
    stall: Duration,
    since: Instant,
    bytes: u64,
}

impl Pace {
    pub(super) fn new(stall: Duration) -> Self {
        Self {
            stall,
            since: Instant::now(),
            bytes: 0,
        }
    }

    /// The next frame of a body, if it comes in time.
    ///
    /// # Errors
    /// [`Refusal::Stalled`].
    pub(super) async fn frame(
        &mut self,
        body: &mut Body,
    ) -> Result<Option<Result<Frame<Bytes>, Error>>, Refusal> {
        let frame = timeout_at(self.since + self.stall, body.frame()).await;
        let frame = frame.map_err(|_| Refusal::Stalled {
            seconds: self.stall.as_secs(),
        })?;
        if let Some(Ok(frame)) = &frame {
            self.bytes += frame.data_ref().map_or(0, |piece| piece.len() as u64);
        }
        if self.bytes >= LEAST {
            (self.since, self.bytes) = (Instant::now(), 0);
        }
        Ok(frame)
    }
}

/// Reads a JSON request.
///
/// # Errors
/// [`Refusal::TooLarge`], [`Refusal::Stalled`], and [`Refusal::Request`] for what is not the JSON wanted.
pub(crate) async fn json<T: DeserializeOwned>(request: Request, limits: &Limits) -> Result<T, Refusal> {
    let limit = limits.request_bytes as u64;
    let length = declared(&request, "the request", limit)?;
    let bytes = collect(request.into_body(), "the request", length, limit, limits.stall).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::request(format!("the request cannot be read: {error}")))
}

/// The length a request declares, refused when it is over `limit`.
pub(super) fn declared(request: &Request, what: &str, limit: u64) -> Result<Option<u64>, Refusal> {
    let header = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    let length = header.and_then(|text| text.parse::<u64>().ok());
    match length {
        Some(bytes) if bytes > limit => Err(Refusal::TooLarge {
            what: what.to_owned(),
            bytes,
            limit,
        }),
        length => Ok(length),
    }
}

async fn collect(
    mut body: Body,
    what: &str,
    length: Option<u64>,
    limit: u64,
    stall: Duration,
) -> Result<Bytes, Refusal> {
    let reserve = length
        .and_then(|length| usize::try_from(length).ok())
        .unwrap_or(FIRST_RESERVE);
    let (mut bytes, mut pace) = (BytesMut::with_capacity(reserve), Pace::new(stall));
    loop {
        let Some(frame) = pace.frame(&mut body).await? else {
            return Ok(bytes.freeze());
        };
        let frame = frame.map_err(|error| Refusal::request(format!("{what} broke off: {error}")))?;
        let Ok(piece) = frame.into_data() else { continue };
        let total = bytes.len() as u64 + piece.len() as u64;
        if total > limit {
            return Err(Refusal::TooLarge {
                what: what.to_owned(),
                bytes: total,
                limit,
            });
        }
        bytes.extend_from_slice(&piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use std::convert::Infallible;

    const STALL: Duration = Duration::from_secs(60);

    /// What becomes of a body of `pieces`, each of so many bytes and after such a pause.
    async fn received(pieces: u32, bytes: usize, pause: Duration) -> Result<usize, Refusal> {
        let pieces = stream::unfold(pieces, move |left| async move {
            tokio::time::sleep(pause).await;
            (left > 0).then(|| (Ok::<_, Infallible>(vec![b' '; bytes]), left - 1))
        });
        let body = Body::from_stream(pieces);
        let bytes = collect(body, "the request", None, 1 << 30, STALL).await;
        bytes.map(|bytes| bytes.len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_given_up_and_one_that_comes_slowly_is_not() {
        let second = Duration::from_secs(1);
        let dripping = received(1000, 1, second).await;
        assert_eq!(dripping, Err(Refusal::Stalled { seconds: 60 }));
        assert_eq!(received(1, 1, 61 * second).await, dripping);
        let least = LEAST as usize;
        assert_eq!(received(100, least / 50, second).await, Ok(100 * (least / 50)));
        assert_eq!(received(50, 1, second).await, Ok(50), "it ends in time");
    }
}
