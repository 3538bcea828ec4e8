//! Bodies as they come in: bounded, and at a pace below which nobody waits for them.

use crate::caller::Caller;
use crate::config::Limits;
use crate::refusal::Refusal;
use crate::scheduling::TenantMemory;
use crate::service::Service;
use axum::Error;
use axum::body::Body;
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use frostline_batching::{Kind, Reserved};
use http::header::CONTENT_LENGTH;
use http_body::Frame;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

/// What a body is reserved first when it does not say how long it is.
const FIRST: u64 = 64 << 10;

/// What a byte of JSON takes: itself, and what it becomes. A sample of 35 bytes becomes three numbers, two strings and their places in
/// lists, some 100 bytes.
const TAKES: u64 = 4;

/// How long a request waits for memory to read it into. Its connection's window may be full of it by then, so others there wait too.
const WAIT: Duration = Duration::from_secs(10);

/// What must come of a body within the time it may stall, unless it ends: 4 KB/s for 60 s. Who sends a byte a minute would else keep what is
/// set aside for the whole for days.
const LEAST: u64 = 256 << 10;

/// How fast a body comes.
pub(super) struct BodyPace {
    stall: Duration,
    since: Instant,
    bytes: u64,
}

impl BodyPace {
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

/// Reads a JSON request of a tenant, or of an admin without a `caller`: into memory that is reserved before, and what it became holds as
/// long as the reservation.
///
/// # Errors
/// [`Refusal::TooLarge`], [`Refusal::Memory`] and [`Refusal::Busy`] where there is no memory for it, [`Refusal::Stalled`], and
/// [`Refusal::Request`] for what is not the JSON wanted.
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
    // Less is never refused.
    memory.resize(bytes.len() as u64 * (TAKES - 1)).ok();
    Ok((parsed, memory))
}

/// The right to one of a tenant's bodies.
async fn body_permit(caller: &Caller) -> Result<SemaphorePermit<'_>, Refusal> {
    let permit = timeout(WAIT, caller.tenant().bodies.acquire()).await;
    let full = |_| {
        let message = "too many concurrent requests of this tenant; send fewer at once";
        Refusal::busy(message, WAIT)
    };
    permit.map_err(full)?.map_err(|_| Refusal::Stopping)
}

/// The length a request declares, refused when it is over `limit`.
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

/// A whole body, for which memory is reserved before any of it is taken. One that does not say how long it is gets more as it grows, at
/// once or not at all: who holds memory must not wait for more of its kind.
async fn collect(
    mut body: Body,
    length: Option<u64>,
    limits: &Limits,
    room: &TenantMemory,
) -> Result<(Bytes, Reserved), Refusal> {
    let limit = limits.request_bytes as u64;
    let mut expected = length.unwrap_or(FIRST);
    let mut memory = room.reserve(expected.saturating_mul(TAKES), WAIT).await?;
    let capacity = usize::try_from(expected).unwrap_or_default();
    let (mut bytes, mut pace) = (BytesMut::with_capacity(capacity), BodyPace::new(limits.stall));
    loop {
        let Some(frame) = pace.frame(&mut body).await? else {
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
            let wanted = expected.saturating_mul(TAKES);
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

    /// What becomes of a body of `pieces`, each of so many bytes and after such a pause.
    async fn received(pieces: u32, bytes: usize, pause: Duration) -> Result<usize, Refusal> {
        let pieces = stream::unfold(pieces, move |left| async move {
            tokio::time::sleep(pause).await;
            (left > 0).then(|| (Ok::<_, Infallible>(vec![b' '; bytes]), left - 1))
        });
        let body = Body::from_stream(pieces);
        let limits = Limits {
            request_bytes: 1 << 30,
            stall: STALL,
            ..Limits::default()
        };
        let room = TenantMemory::new(&Memory::unbounded(), "a", Kind::Request);
        let collected = collect(body, None, &limits, &room).await;
        collected.map(|(bytes, _)| bytes.len())
    }

    /// What becomes of a body of so many bytes, which says so or not, in 1 MiB of memory of which so much is held.
    async fn within(held: u64, bytes: u64, says: bool) -> Result<u64, Refusal> {
        let memory = Memory::new(Budget {
            bytes: 1 << 20,
            ..Budget::default()
        });
        let others = memory.try_reserve("b", Kind::Request, held).unwrap();
        let pieces = stream::iter((0..bytes / 1024).map(|_| Ok::<_, Infallible>(vec![b' '; 1024])));
        let room = TenantMemory::new(&memory, "a", Kind::Request);
        let length = says.then_some(bytes);
        let collected = collect(Body::from_stream(pieces), length, &Limits::default(), &room).await;
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
