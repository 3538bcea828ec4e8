//! Bodies as they come in: bounded, with a deadline between any two pieces.

use super::Refusal;
use crate::config::Limits;
use crate::service::Service;
use axum::body::Body;
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// The unit in which the memory of uploads is reserved, because a semaphore counts in 32 bits.
pub(crate) const UPLOAD_UNIT: u64 = 64 << 10;

/// What a body is reserved first when it does not say how long it is.
const FIRST_RESERVE: usize = 1 << 20;

/// How many units `bytes` take.
pub(crate) fn upload_units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UPLOAD_UNIT)).unwrap_or(u32::MAX)
}

/// A whole upload in memory, its hash, and the reservation of that memory.
pub(super) struct Upload {
    pub(super) bytes: Bytes,
    pub(super) sha256: String,
    /// Held until the upload is stored or refused.
    pub(super) _reserved: OwnedSemaphorePermit,
}

/// Reads a JSON request.
///
/// # Errors
/// [`Refusal::TooLarge`], [`Refusal::Stalled`], and [`Refusal::Request`] for what is not the JSON wanted.
pub(crate) async fn json<T: DeserializeOwned>(request: Request, limits: &Limits) -> Result<T, Refusal> {
    let limit = limits.request_bytes as u64;
    let length = declared(&request, "the request", limit)?;
    let bytes = collect(
        request.into_body(),
        "the request",
        length,
        limit,
        limits.stall,
        |_| (),
    )
    .await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::request(format!("the request cannot be read: {error}")))
}

/// Reads an upload of at most `limit` bytes, hashing it on the way. Its memory is reserved before a byte is read.
///
/// # Errors
/// [`Refusal::TooLarge`], [`Refusal::Stalled`], and [`Refusal::Busy`] when other uploads fill the memory set aside.
pub(super) async fn upload(
    service: &Service,
    request: Request,
    what: &str,
    limit: u64,
) -> Result<Upload, Refusal> {
    let length = declared(&request, what, limit)?;
    let units = upload_units(length.unwrap_or(limit));
    let stall = service.config.limits.stall;
    let reserve = Arc::clone(&service.uploads).acquire_many_owned(units);
    let busy = || Refusal::Busy {
        message: "other uploads fill the memory this host sets aside for them".to_owned(),
        retry_after: Duration::from_secs(5),
    };
    let reserved = tokio::time::timeout(stall, reserve).await.map_err(|_| busy())?;
    let _reserved = reserved.map_err(|_| Refusal::Stopping)?;
    let mut hash = Sha256::new();
    let bytes = collect(request.into_body(), what, length, limit, stall, |piece| {
        hash.update(piece);
        service.metrics.upload_bytes.inc_by(piece.len() as u64);
    });
    let bytes = bytes.await?;
    Ok(Upload {
        bytes,
        sha256: hex::encode(hash.finalize()),
        _reserved,
    })
}

/// The length a request declares, refused when it is over `limit`.
fn declared(request: &Request, what: &str, limit: u64) -> Result<Option<u64>, Refusal> {
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
    mut seen: impl FnMut(&[u8]),
) -> Result<Bytes, Refusal> {
    let reserve = length
        .and_then(|length| usize::try_from(length).ok())
        .unwrap_or(FIRST_RESERVE);
    let mut bytes = BytesMut::with_capacity(reserve);
    loop {
        let frame = tokio::time::timeout(stall, body.frame()).await;
        let frame = frame.map_err(|_| Refusal::Stalled {
            seconds: stall.as_secs(),
        })?;
        let Some(frame) = frame else {
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
        seen(&piece);
        bytes.extend_from_slice(&piece);
    }
}
