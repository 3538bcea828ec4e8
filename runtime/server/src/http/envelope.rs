//! What stands around every request: the token, the log, the counters.

use super::network::Network;
use super::peer::Peer;
use crate::caller::Caller;
use crate::metrics::RequestLabels;
use crate::refusal::Refusal;
use crate::service::Service;
use axum::Extension;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use tracing::Instrument;

/// Lets a request through that carries a tenant's token, for as long as that is good, and says which tenant's.
pub(super) async fn authorize(
    State(service): State<Arc<Service>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let given = bearer(request.headers()).ok_or(Refusal::Unauthorized)?;
    match service.tenants.admit(given, frostline_profile::now()) {
        Ok(pass) => {
            let caller = Caller::new(Arc::clone(&service), pass);
            tracing::Span::current().record("tenant", &caller.tenant().name);
            peer.permit.known(&caller.tenant().name);
            request.extensions_mut().insert(caller.clone());
            tokio::select! {
                response = next.run(request) => {
                    if response.status() == StatusCode::TOO_MANY_REQUESTS {
                        service.operations.metrics.tenants.busy(&caller.tenant().name);
                    }
                    Ok(response)
                }
                refusal = caller.dismissed(None) => Err(refusal),
            }
        }
        Err(denied) => {
            peer.permit.unknown();
            slowed_down(&service, peer.address)?;
            Err(denied.into())
        }
    }
}

/// The tenant that the token was found to be of, before the handler was reached.
impl FromRequestParts<Arc<Service>> for Caller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Service>) -> Result<Self, Refusal> {
        parts.extensions.get().cloned().ok_or(Refusal::Unauthorized)
    }
}

/// Counts a bad token from an address.
///
/// # Errors
/// [`Refusal::Busy`] when there were too many.
pub(super) fn slowed_down(service: &Service, from: IpAddr) -> Result<(), Refusal> {
    let (now, bouncer, from) = (Instant::now(), &service.bouncer, Network::of(from).customer);
    if let Some(wait) = bouncer.wait(from, now) {
        let message = format!("too many bad tokens came from {from}; come back later, or with a good one");
        return Err(Refusal::busy(message, wait));
    }
    bouncer.bad(from, now);
    Ok(())
}

pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Counts an answer, and keeps the host from going before it is decided.
pub(super) async fn observe(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let _token = service.scheduling.work.token();
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("other", MatchedPath::as_str)
        .to_owned();
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

/// Puts a request's log lines into a span that names the caller's trace; and the tenant, the guest and the extraction once they are known.
/// It has the highest level, so that also a host that logs errors alone says whose they are.
pub(super) async fn span(request: Request, next: Next) -> Response {
    let trace = trace_id(request.headers()).unwrap_or("-");
    let span = tracing::error_span!(
        "request",
        method = %request.method(),
        path = request.uri().path(),
        trace,
        tenant = tracing::field::Empty,
        guest = tracing::field::Empty,
        extraction = tracing::field::Empty
    );
    let started = Instant::now();
    async move {
        let response = next.run(request).await;
        let (status, ms) = (response.status().as_u16(), started.elapsed().as_millis() as u64);
        tracing::info!(status, ms, "answered");
        response
    }
    .instrument(span)
    .await
}

/// The trace's id in a W3C `traceparent` header, such as `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
/// <https://www.w3.org/TR/trace-context/#traceparent-header>
fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let mut parts = headers.get("traceparent")?.to_str().ok()?.split('-');
    let (version, id) = (parts.next()?, parts.next()?);
    let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let valid = version.len() == 2 && hex(version) && version != "ff" && id.len() == 32 && hex(id);
    (valid && id.bytes().any(|byte| byte != b'0')).then_some(id)
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

    #[test]
    fn only_a_well_formed_traceparent_reaches_the_log() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let good = with(
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        );
        assert_eq!(trace_id(&good), Some(id));
        for bad in [
            "",
            "00",
            "00-xyz-1-1",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(trace_id(&with("traceparent", bad)), None, "{bad}");
        }
    }
}
