//! Handlers without authentication: readiness and metrics.

use crate::metrics::plain_text;
use crate::refusal::Refusal;
use crate::service::Service;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use std::fmt::Write;
use std::sync::Arc;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns 200 while the host runs.
pub(super) async fn health() -> &'static str {
    "ok\n"
}

/// Returns 200, or 503 while the host is draining. A failing store does not change the status, because other
/// hosts read from the same store, and a host without traffic could not report the failure to clients.
pub(super) async fn ready(State(service): State<Arc<Service>>) -> (StatusCode, String) {
    let failing = service.operations.roots.failing().len();
    let says = match failing {
        0 => String::new(),
        failing => format!("data roots failing: {failing}\n"),
    };
    readiness(&service, &says)
}

/// Returns the same status as the tenants' port and lists the failing data roots.
pub(super) async fn ready_by_root(State(service): State<Arc<Service>>) -> (StatusCode, String) {
    let mut says = String::new();
    for root in service.operations.roots.failing() {
        // Writing to a string cannot fail.
        let _ = writeln!(
            says,
            "{} has failed for {} s: {}: {}",
            root.root, root.seconds, root.fault, root.error
        );
    }
    readiness(&service, &says)
}

fn readiness(service: &Service, says: &str) -> (StatusCode, String) {
    if service.scheduling.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, format!("shutting down\n{says}"))
    } else {
        (StatusCode::OK, format!("ready\n{says}"))
    }
}

/// Returns the host's metrics without those of tenants and data roots.
pub(super) async fn metrics(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let text = service.operations.exposition.text().map_err(Refusal::host)?;
    Ok(exposition(text, &headers))
}

/// Returns all metrics, including those of tenants and data roots.
pub(super) async fn metrics_by_tenant(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let text = service.operations.exposition.text_by_tenant();
    Ok(exposition(text.map_err(Refusal::host)?, &headers))
}

/// Responds with OpenMetrics if the client accepts it, as Prometheus does, and with the older Prometheus text
/// format otherwise.
fn exposition(text: String, headers: &HeaderMap) -> Response {
    let mut accepted = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok());
    if accepted.any(|accept| accept.contains("application/openmetrics-text")) {
        ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response()
    } else {
        ([(CONTENT_TYPE, PLAIN_TEXT)], plain_text(&text)).into_response()
    }
}
