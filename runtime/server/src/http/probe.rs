//! Handler of `GET /v1/probe?bytes=`, which returns random bytes to measure the link.

use super::answer::Answer;
use super::queries::Amount;
use crate::caller::Caller;
use crate::refusal::Refusal;
use axum::extract::{Query, Request};
use bytes::Bytes;
use std::sync::LazyLock;

/// Maximum number of bytes per probe. On a link with 1.3 Gbit/s, they need a twentieth of a second.
const MAX_BYTES: usize = 8 << 20;
/// Bytes per piece. Clients measure the time between pieces, so pieces are small enough to receive several
/// within a tenth of a second on a slow link.
const PIECE: usize = 16 << 10;

/// Random bytes, because a middlebox may compress. If the system has no random source, these are zeros.
static NOISE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut noise = vec![0; PIECE];
    let _ = getrandom::fill(&mut noise);
    noise.into()
});

/// Returns `?bytes=` random bytes to measure the link.
pub(super) async fn probe(caller: Caller, request: Request) -> Result<Answer, Refusal> {
    let amount = Query::<Amount>::try_from_uri(request.uri());
    let Query(Amount { bytes }) =
        amount.map_err(|error| Refusal::request(format!("{error}; use /v1/probe?bytes=<number>")))?;
    if bytes > MAX_BYTES {
        return Err(Refusal::request(format!(
            "a probe is limited to {MAX_BYTES} bytes"
        )));
    }
    caller.metrics().tenants.count_probe(&caller.tenant().name);
    let pieces = (0..bytes.div_ceil(PIECE)).map(move |index| NOISE.slice(..PIECE.min(bytes - index * PIECE)));
    Ok(Answer::repeated(pieces))
}
