//! Extractions: the request path from the parsed request to the streamed answer.

mod admission;
mod body;
mod check;
mod desk;
mod drive;
mod encoder;
mod lines;
mod work;

pub(crate) use admission::{Admission, Place};
pub(crate) use check::check_samples;
pub(crate) use desk::GrantDesk;
pub(crate) use lines::Standing;

use crate::caller::Caller;
use crate::http;
use crate::metrics::{Outcome, SplitKind};
use crate::refusal::Refusal;
use axum::extract::Request;
use axum::response::Response;
use encoder::{Encoder, Output};
use frostline_wire::{ExtractionRequest, Split};
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// `POST /v1/extractions`, after the router has checked the token.
///
/// The status is decided by the first grant's outcome: what fails until then is a proper error, what fails later aborts
/// the body. Dropping this future, or the body, cancels everything that was started.
pub(crate) async fn extract(caller: Caller, request: Request) -> Result<Response, Refusal> {
    let service = Arc::clone(&caller);
    let allowed = caller.tenant().allowed.clone();
    let deadline = Instant::now() + allowed.wall();
    let too_long = |_| Refusal::Deadline {
        seconds: allowed.wall().as_secs(),
    };

    let id = id()?;
    tracing::Span::current().record("extraction", &id);
    let request: ExtractionRequest = http::json(request, &service.config.limits).await?;
    check::precheck(&caller, &request)?;
    let kind = SplitKind::from(&request.split);
    let started = Instant::now();
    let place = timeout_at(
        deadline,
        service.admission.enter(&caller.tenant().name, allowed.places()),
    )
    .await
    .map_err(too_long)??;
    let tenant = caller.tenant().name.clone();
    let guest = match &request.split {
        Split::Cut(_) => request.guest.as_ref().map(|pin| pin.name.clone()),
        Split::None | Split::Input => None,
    };
    let begin = async {
        let checked = check::check(&caller, id, request).await?;
        let encoder = Encoder::new(checked.rows, checked.encoding, Output::new(caller.clone()))?;
        let mut calls = drive::calls(caller.clone(), checked.work, kind, checked.samples);
        let (first, encoder) = drive::next(&mut calls, encoder).await?;
        Ok((first, encoder, calls))
    };
    let begun = tokio::select! {
        begun = timeout_at(deadline, begin) => begun.map_err(too_long).flatten(),
        refusal = caller.dismissed(guest.as_deref()) => Err(refusal),
    };
    let (first, encoder, calls) =
        begun.inspect_err(|_| service.metrics.ended(&tenant, kind, Outcome::Refused))?;
    Ok(drive::Answer {
        service,
        caller,
        tenant,
        guest,
        kind,
        calls,
        encoder,
        place,
        deadline,
        until_first: started.elapsed(),
    }
    .stream(first))
}

/// What an extraction is called in the log, different on all hosts.
fn id() -> Result<String, Refusal> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random)
        .map_err(|error| Refusal::host(format!("no random bytes to name an extraction: {error}")))?;
    Ok(hex::encode(random))
}
