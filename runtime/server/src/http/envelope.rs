//! Middleware for all requests: authentication, log spans and counters.

use super::metered::{is_limited, metered};
use super::network::Network;
use super::peer::Peer;
use super::status::Payer;
use super::strangers::truncate;
use crate::caller::Caller;
use crate::metrics::RequestLabels;
use crate::refusal::Refusal;
use crate::sampler::LogRateLimit;
use crate::service::Service;
use crate::tenants::ThrottleReport;
use axum::Extension;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use frostline_batching::Kind;
use frostline_wire::{QuotaKey, TRACEPARENT, TraceParent};
use http::header::{AUTHORIZATION, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::time::Instant;
use tracing::{Instrument, Span, field};

/// Authenticates a tenant by token and passes the request on with the tenant as [`Caller`]. The request is
/// cancelled if access is revoked before it completes.
pub(super) async fn authorize(
    State(service): State<Arc<Service>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let given = bearer(request.headers()).ok_or(Refusal::Unauthorized)?;
    match service.tenants.admit(given, service.clock.earliest()) {
        Ok(pass) => {
            let caller = Caller::new(Arc::clone(&service), pass, peer.address);
            Span::current().record("tenant", &caller.tenant().name);
            peer.permit.assign_tenant(&caller.tenant().name);
            let limited = is_limited(request.method());
            let may_send = match limited {
                true => caller.check_budget(QuotaKey::BytesPerDay),
                false => Ok(()),
            };
            request.extensions_mut().insert(caller.clone());
            let answer = async {
                match may_send {
                    Ok(()) => next.run(request).await,
                    Err(refusal) => refusal.into_response(),
                }
            };
            tokio::select! {
                response = caller.blocking_charge().pay_for(answer) => {
                    let mut response = metered(&caller, limited, response);
                    response.extensions_mut().insert(Authenticated(caller.clone()));
                    response.extensions_mut().insert(Payer(caller.memory(Kind::Request)));
                    if response.status() == StatusCode::TOO_MANY_REQUESTS {
                        service.operations.metrics.tenants.count_busy(&caller.tenant().name);
                    }
                    Ok(response)
                }
                refusal = caller.wait_until_refused(|| caller.check_access()) => Err(refusal),
            }
        }
        Err(denied) => {
            peer.permit.clear_tenant();
            throttle(&service, peer.address, "listen")?;
            Err(denied.into())
        }
    }
}

/// Marks the response to an authenticated request.
#[derive(Clone)]
struct Authenticated(Caller);

/// Extracts the tenant that [`authorize`] has authenticated.
impl FromRequestParts<Arc<Service>> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Service>) -> Result<Self, Refusal> {
        parts.extensions.get().cloned().ok_or(Refusal::Unauthorized)
    }
}

/// Counts an invalid token from an address at `port`, which is `listen` or `admin_listen`.
///
/// # Errors
///
/// Returns [`Refusal::Busy`] if the network of the address must wait after earlier invalid tokens.
pub(super) fn throttle(service: &Service, from: IpAddr, port: &'static str) -> Result<(), Refusal> {
    service.operations.metrics.count_invalid_token(port);
    let now = Instant::now();
    let throttle = &service.throttle;
    let from = Network::from_address(from).customer;
    if let Some(wait) = throttle.remaining_wait(from, now) {
        let message = format!("too many invalid tokens from {from}; use a valid token, or retry later");
        return Err(Refusal::busy(message, wait));
    }
    if let Some(ThrottleReport { tried, left_out }) = throttle.record(from, now) {
        tracing::warn!(%from, tried, left_out, "throttling a network after many invalid tokens");
    }
    Ok(())
}

/// Refuses a request whose end is ambiguous. Two transfer encodings, even twice the same, are read
/// differently by different proxies.
pub(super) async fn refuse_ambiguous(request: Request, next: Next) -> Result<Response, Refusal> {
    let mut encodings = request.headers().get_all(TRANSFER_ENCODING).iter();
    let is_plain = encodings
        .next()
        .is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"))
        && encodings.next().is_none();
    if !is_plain {
        return Err(Refusal::request(
            "send a single Transfer-Encoding, which must be chunked",
        ));
    }
    Ok(next.run(request).await)
}

pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Counts the answer by route and status. The host does not exit before the answer has started.
pub(super) async fn observe(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let _token = service.scheduling.work.token();
    let route = route(&request).unwrap_or("other").to_owned();
    let response = next.run(request).await;
    let status = match response.status().as_u16() {
        0..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    };
    let metrics = &service.operations.metrics;
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        metrics.busy_answers.inc();
    }
    metrics
        .requests
        .get_or_create(&RequestLabels { route, status })
        .inc();
    response
}

fn route(request: &Request) -> Option<&str> {
    request.extensions().get().map(MatchedPath::as_str)
}

/// Creates a span for all log lines of a request. It contains the caller's trace ID, the tenant, the guest
/// and the extraction. Fields that are unknown at the start are added later. The span has the level `error`,
/// because a host that logs only errors must also include these fields. It can be exported as part of the
/// caller's trace.
///
/// For requests without a valid token, method and path are truncated and only a sample of the answers is
/// logged.
pub(super) async fn span(
    State(strangers): State<Arc<LogRateLimit>>,
    request: Request,
    next: Next,
) -> Response {
    let caller = caller_of(request.headers());
    let span = tracing::error_span!(
        "request",
        method = truncate(request.method().as_str()),
        path = truncate(request.uri().path()),
        route = route(&request),
        peer = request
            .extensions()
            .get::<Peer>()
            .map(|peer| field::display(peer.address)),
        trace = caller.map_or_else(|| "-".to_owned(), |caller| caller.trace_id()),
        parent = caller.map(|caller| caller.span_and_flags()),
        tenant = field::Empty,
        guest = field::Empty,
        extraction = field::Empty,
        status = field::Empty,
        outcome = field::Empty,
    );
    let started = Instant::now();
    async move {
        let response = next.run(request).await;
        let status = response.status().as_u16();
        let ms = started.elapsed().as_millis() as u64;
        let lines = match response.extensions().get::<Authenticated>() {
            Some(Authenticated(caller)) => &caller.tenant().log_lines,
            None => &strangers,
        };
        if let Some(left_out) = lines.sample() {
            tracing::info!(status, ms, left_out, "answered");
        }
        Span::current().record("status", status);
        response
    }
    .instrument(span)
    .await
}

/// Parses the `traceparent` header.
pub(super) fn caller_of(headers: &HeaderMap) -> Option<TraceParent> {
    TraceParent::read(headers.get(TRACEPARENT)?.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(
            http::HeaderName::from_static(name),
            http::HeaderValue::from_static(value),
        )])
    }

    #[test]
    fn a_token_is_taken_from_a_bearer_header_only() {
        assert_eq!(bearer(&with("authorization", "Bearer abc")), Some("abc"));
        assert_eq!(bearer(&with("authorization", "bearer abc")), Some("abc"));
        assert_eq!(bearer(&with("authorization", "Basic abc")), None);
        assert_eq!(bearer(&with("authorization", "abc")), None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
