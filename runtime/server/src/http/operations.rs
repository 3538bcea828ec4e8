//! Handlers without authentication: readiness and metrics.

use super::answer::{Answer, OBJECT};
use crate::metrics::Audience;
use crate::refusal::Refusal;
use crate::scheduling::TenantMemory;
use crate::service::Service;
use axum::extract::State;
use frostline_batching::Kind;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, StatusCode};
use std::fmt::Write;
use std::sync::Arc;
use tokio::time::Instant;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Returns 200 while the host runs.
pub(super) async fn health(_: State<Arc<Service>>) -> Result<Answer, Refusal> {
    Ok(Answer::constant("ok\n"))
}

/// Returns 200, or 503 while the host is draining. A failing store does not change the status, because other
/// hosts read from the same store, and a host without traffic could not report the failure to clients.
pub(super) async fn ready(State(service): State<Arc<Service>>) -> Result<Answer, Refusal> {
    let failing = service.operations.roots.failing().len();
    let says = match failing {
        0 => String::new(),
        failing => format!("data roots failing: {failing}\n"),
    };
    Ok(readiness(&service, &says))
}

/// Returns the same status as the tenants' port and lists the failing data roots.
pub(super) async fn ready_by_root(State(service): State<Arc<Service>>) -> Result<Answer, Refusal> {
    let mut says = String::new();
    for root in service.operations.roots.failing() {
        // Writing to a string cannot fail.
        let _ = writeln!(
            says,
            "{} has failed for {} s: {}: {}",
            root.root, root.seconds, root.fault, root.error
        );
    }
    Ok(readiness(&service, &says))
}

/// Creates the answer to a probe, which is never refused: without memory, it leaves out the data roots.
fn readiness(service: &Service, says: &str) -> Answer {
    let (status, word) = match service.scheduling.is_draining() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
        false => (StatusCode::OK, "ready\n"),
    };
    let memory = service.scheduling.strangers().try_reserve(OBJECT);
    let full = memory.and_then(|memory| Answer::text(format!("{word}{says}"), memory));
    full.unwrap_or_else(|_| Answer::constant(word))
        .with_status(status)
}

/// Returns the host's metrics without those of tenants and data roots.
pub(super) async fn metrics(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
) -> Result<Answer, Refusal> {
    exposition(&service, Audience::Everyone, &headers)
}

/// Returns all metrics, including those of tenants and data roots.
pub(super) async fn metrics_by_tenant(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
) -> Result<Answer, Refusal> {
    exposition(&service, Audience::Operator, &headers)
}

/// Responds with OpenMetrics if the client accepts it, as Prometheus does, and with the older Prometheus text
/// format otherwise. All answers within a second share the text.
fn exposition(service: &Service, audience: Audience, headers: &HeaderMap) -> Result<Answer, Refusal> {
    let host = TenantMemory::new(&service.scheduling.memory, "", Kind::Request);
    let scrape = service
        .operations
        .exposition
        .scrape(audience, Instant::now(), &host, || service.snapshot())?;
    let mut accepted = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok());
    Ok(
        match accepted.any(|accept| accept.contains("application/openmetrics-text")) {
            true => Answer::shared(scrape.open_metrics, OPEN_METRICS),
            false => Answer::shared(scrape.plain, PLAIN_TEXT),
        },
    )
}
