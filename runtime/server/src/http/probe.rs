//! `GET /v1/probe?bytes=`: that many bytes of noise, to measure the link by.

use crate::caller::Caller;
use crate::refusal::Refusal;
use axum::body::Body;
use axum::extract::{Query, Request};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::LazyLock;

/// The most that clients ask for: a twentieth of a second of a link of 1.3 Gbit/s.
const MOST: usize = 8 << 20;
/// A client measures from one piece to another, so of what slow links move in a tenth of a second there are several.
const PIECE: usize = 16 << 10;

/// Noise, since a middlebox may compress. Zeros where the system gives none.
static NOISE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut noise = vec![0; PIECE];
    let _ = getrandom::fill(&mut noise);
    noise.into()
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Amount {
    bytes: usize,
}

/// Answers `?bytes=` bytes of noise, to measure the link.
pub(super) async fn probe(caller: Caller, request: Request) -> Result<Response, Refusal> {
    let amount = Query::<Amount>::try_from_uri(request.uri());
    let Query(Amount { bytes }) =
        amount.map_err(|error| Refusal::request(format!("{error}; use /v1/probe?bytes=<number>")))?;
    if bytes > MOST {
        return Err(Refusal::request(format!("a probe is limited to {MOST} bytes")));
    }
    caller.check_budgets()?;
    let (counters, tenant) = (&caller.metrics().tenants, &caller.tenant().name);
    counters.count_probe(tenant);
    let sent = counters.sent_bytes_of(tenant);
    let pieces = (0..bytes.div_ceil(PIECE)).map(move |index| {
        let piece = NOISE.slice(..PIECE.min(bytes - index * PIECE));
        sent.inc_by(piece.len() as u64);
        Ok::<_, Infallible>(piece)
    });
    Ok(Response::new(Body::from_stream(stream::iter(pieces))))
}
