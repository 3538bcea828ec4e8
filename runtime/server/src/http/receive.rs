//! Reception of request bodies with a size limit and a minimum rate.

use super::answer::RequestStream;
use super::pace::{Pace, RATE};
use crate::caller::Caller;
use crate::config::Limits;
use crate::refusal::Refusal;
use crate::scheduling::TenantMemory;
use crate::service::Service;
use axum::Error;
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use frostline_batching::{Kind, Reserved};
use http::header::CONTENT_LENGTH;
use http_body::Frame;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout};

/// Initial reservation in bytes for a body without a declared length.
const INITIAL_BYTES: u64 = 64 << 10;

/// Memory per byte of JSON, for the text and the parsed form. A sample of 35 bytes becomes three numbers, two
/// strings and list entries with a total of 100 bytes.
const MEMORY_PER_BYTE: u64 = 4;

/// Maximum time that a request waits for memory. During this time the request may fill the window of the
/// connection, so other requests on it wait too.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);

/// Request body with the [`Pace`] of the client.
pub(super) struct IncomingBody {
    body: RequestStream,
    stall: Duration,
    pace: Pace,
}

impl IncomingBody {
    pub(super) fn new(body: RequestStream, stall: Duration) -> Self {
        Self {
            body,
            stall,
            pace: Pace::at(RATE),
        }
    }

    /// Returns the next frame, or `None` at the end. Only time in this function counts as the client's.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal::Stalled`] if the client is too slow.
    pub(super) async fn frame(&mut self) -> Result<Option<Result<Frame<Bytes>, Error>>, Refusal> {
        let begun = Instant::now();
        let left = self.stall.saturating_sub(self.pace.delay());
        let frame = timeout(left, self.body.frame()).await;
        let frame = frame.map_err(|_| Refusal::Stalled {
            seconds: self.stall.as_secs(),
        })?;
        let received = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        let bytes = received.map_or(0, |piece| piece.len() as u64);
        self.pace.record(begun.elapsed(), bytes);
        Ok(frame)
    }
}

/// Reads a JSON request from a tenant, or from an admin if `caller` is `None`. Memory is reserved before the
/// body is read. The returned reservation covers the parsed value and must live as long.
///
/// # Errors
///
/// - Returns [`Refusal::TooLarge`] if the body exceeds the limit.
/// - Returns [`Refusal::Memory`] or [`Refusal::Busy`] if not enough memory is available.
/// - Returns [`Refusal::Stalled`] if the body makes too little progress.
/// - Returns [`Refusal::Request`] if the body is not valid JSON for the type.
pub(crate) async fn json<T: DeserializeOwned>(
    request: Request,
    service: &Service,
    caller: Option<&Caller>,
) -> Result<(T, Reserved), Refusal> {
    let limits = &service.config.limits;
    let tenant = caller.map_or("", |caller| &caller.tenant().name);
    let _permit = match caller {
        Some(caller) => Some(body_permit(caller).await?),
        None => None,
    };
    let length = declared_length(&request, "the request", limits.request_bytes as u64)?;
    let room = TenantMemory::new(&service.scheduling.memory, tenant, Kind::Request);
    let (bytes, mut memory) = collect(request.into_body(), length, limits, &room).await?;
    let parsed = serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::request(format!("invalid request: {error}")))?;
    // Shrinking a reservation cannot fail.
    memory.resize(bytes.len() as u64 * (MEMORY_PER_BYTE - 1)).ok();
    Ok((parsed, memory))
}

/// Waits for a permit to receive one more body from the tenant.
async fn body_permit(caller: &Caller) -> Result<SemaphorePermit<'_>, Refusal> {
    let permit = timeout(MEMORY_TIMEOUT, caller.tenant().bodies.acquire()).await;
    permit
        .map_err(|_| {
            let message = "too many concurrent requests of this tenant; reduce concurrency";
            Refusal::busy(message, MEMORY_TIMEOUT)
        })?
        .map_err(|_| Refusal::Stopping)
}

/// Returns the declared length of a request. Fails if it exceeds `limit`.
pub(super) fn declared_length(request: &Request, what: &str, limit: u64) -> Result<Option<u64>, Refusal> {
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

/// Collects a complete body. Memory is reserved before data is read. For a body without a declared length,
/// the reservation grows with the body. It grows immediately or fails, because waiting for more memory while
/// holding some could cause a deadlock.
async fn collect(
    body: RequestStream,
    length: Option<u64>,
    limits: &Limits,
    room: &TenantMemory,
) -> Result<(Bytes, Reserved), Refusal> {
    let limit = limits.request_bytes as u64;
    let mut expected = length.unwrap_or(INITIAL_BYTES);
    let mut memory = room
        .reserve(expected.saturating_mul(MEMORY_PER_BYTE), MEMORY_TIMEOUT)
        .await?;
    let capacity = usize::try_from(expected).unwrap_or_default();
    let mut bytes = BytesMut::with_capacity(capacity);
    let mut body = IncomingBody::new(body, limits.stall);
    loop {
        let Some(frame) = body.frame().await? else {
            return Ok((bytes.freeze(), memory));
        };
        let frame =
            frame.map_err(|error| Refusal::request(format!("the request was interrupted: {error}")))?;
        let Ok(piece) = frame.into_data() else { continue };
        let total = bytes.len() as u64 + piece.len() as u64;
        if total > limit {
            return Err(Refusal::TooLarge {
                what: "the request".to_owned(),
                bytes: total,
                limit,
            });
        }
        if total > expected {
            expected = total.saturating_mul(2).min(limit);
            let wanted = expected.saturating_mul(MEMORY_PER_BYTE);
            memory.resize(wanted).map_err(|_| room.refusal(wanted))?;
        }
        bytes.extend_from_slice(&piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frostline_batching::{Budget, Ledger, Memory};
    use futures::stream;
    use std::convert::Infallible;

    const STALL: Duration = Duration::from_secs(60);

    /// Receives a body with this number of pieces, bytes per piece and pause before each piece.
    async fn received(pieces: u32, bytes: usize, pause: Duration) -> Result<usize, Refusal> {
        let pieces = stream::unfold(pieces, move |left| async move {
            tokio::time::sleep(pause).await;
            (left > 0).then(|| (Ok::<_, Infallible>(vec![b' '; bytes]), left - 1))
        });
        let body = RequestStream::from_stream(pieces);
        let limits = Limits {
            request_bytes: 1 << 30,
            stall: STALL,
            ..Limits::default()
        };
        let room = TenantMemory::new(&Memory::unbounded(), "a", Kind::Request);
        let collected = collect(body, None, &limits, &room).await;
        collected.map(|(bytes, _)| bytes.len())
    }

    /// Receives a body in 1 MiB of memory and returns the reserved bytes. Another tenant holds `held` bytes
    /// of the memory, and `says` determines whether the length is declared.
    async fn within(held: u64, bytes: u64, says: bool) -> Result<u64, Refusal> {
        let memory = Memory::new(Budget {
            bytes: 1 << 20,
            ..Budget::default()
        });
        let others = memory.try_reserve("b", Kind::Request, held).unwrap();
        let pieces = stream::iter((0..bytes / 1024).map(|_| Ok::<_, Infallible>(vec![b' '; 1024])));
        let room = TenantMemory::new(&memory, "a", Kind::Request);
        let length = says.then_some(bytes);
        let collected = collect(
            RequestStream::from_stream(pieces),
            length,
            &Limits::default(),
            &room,
        )
        .await;
        let reserved = collected.as_ref().map(|(_, memory)| memory.bytes());
        let reserved = reserved.map_err(Clone::clone);
        drop((collected, others));
        assert_eq!(memory.read(Ledger::held_in_all), 0);
        reserved
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_reserved_before_a_body_is_taken() {
        for says in [true, false] {
            let whole = within(0, 120 << 10, says).await.unwrap();
            assert!(whole >= 120 << 10, "{whole}");
            let busy = within(512 << 10, 192 << 10, says).await;
            assert!(matches!(busy, Err(Refusal::Busy { .. })), "{busy:?}");
            let never = within(0, 2 << 20, says).await.unwrap_err();
            let Refusal::Memory { message } = never else {
                panic!("{never}")
            };
            assert!(message.contains("memory_budget of 1048576"), "{message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_below_the_minimum_rate_is_refused() {
        let second = Duration::from_secs(1);
        let dripping = received(1000, 1, second).await;
        assert_eq!(dripping, Err(Refusal::Stalled { seconds: 60 }));
        assert_eq!(received(1, 1, 61 * second).await, dripping);
        let least = RATE as usize;
        assert_eq!(received(200, least, second).await, Ok(200 * least));
        assert_eq!(received(1000, least / 2, second).await, dripping);
        assert_eq!(received(50, 1, second).await, Ok(50), "the body ends in time");
    }
}
