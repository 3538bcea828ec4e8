//! Bodies as they come in: bounded, with a deadline between any two pieces.

use super::Refusal;
use crate::config::Limits;
use axum::body::Body;
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// What a body is reserved first when it does not say how long it is.
const FIRST_RESERVE: usize = 1 << 20;

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
        bytes.extend_from_slice(&piece);
    }
}
