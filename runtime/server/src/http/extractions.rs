//! Handler of `POST /v1/extractions`.

use super::answer::Answer;
use super::answer_body::AnswerBody;
use super::envelope::caller_of;
use super::pace::RowPace;
use super::receive::json;
use crate::caller::Caller;
use crate::extraction::{ClientRequest, Extraction};
use crate::refusal::Refusal;
use axum::extract::Request;
use frostline_wire::{ARROW_STREAM, COMPUTED_PRECISION, ExtractionRequest, Split};
use http::{HeaderName, HeaderValue};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Extracts samples. The answer is an Arrow IPC stream with a row for each sample.
///
/// The first grant decides the status. A failure until then becomes an error response, and a later failure
/// aborts the body. Dropping this future or the body cancels the extraction.
pub(super) async fn extract(caller: Caller, request: Request) -> Result<Answer, Refusal> {
    let deadline = Instant::now() + caller.tenant().quota.wall();
    let trace = caller_of(request.headers()).map(|trace| trace.trace_id());
    let (request, memory) = json(request, caller.service(), Some(&caller)).await?;
    let precision = computed_precision(&caller, &request);
    let client_request = ClientRequest { request, trace };
    let extraction = Extraction::start(caller.clone(), client_request, memory, deadline).await?;
    let (sender, pieces) = mpsc::channel(1);
    extraction.send(sender);
    let service = caller.service();
    let tenant = &caller.tenant().name;
    let memory = &service.scheduling.memory;
    let stall = service.config.limits.stall;
    let pace = RowPace::new(memory, tenant, stall);
    let rows = AnswerBody::new(pieces, pace, caller.metrics().answer_bytes());
    let answer = Answer::rows(rows, HeaderValue::from_static(ARROW_STREAM));
    Ok(match precision.map(HeaderValue::try_from) {
        Some(Ok(precision)) => answer.with_header(HeaderName::from_static(COMPUTED_PRECISION), precision),
        _ => answer,
    })
}

/// Returns the precision in which this host computes the requested layers, if the request permits less than
/// full precision.
fn computed_precision(caller: &Caller, request: &ExtractionRequest) -> Option<String> {
    let permitted = request.terms.precision;
    let computes = matches!(request.split, Split::Cut(_)) && !permitted.is_full();
    computes.then(|| caller.config().device.precision(permitted).to_string())
}
