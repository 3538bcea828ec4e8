//! The HTTP interface: routes, what comes in, what goes out.

mod admin;
mod answer_body;
mod connections;
mod envelope;
mod extractions;
mod intake;
mod linger;
mod network;
mod peer;
mod permits;
mod probe;
mod profiles;
mod proxy;
mod reading;
mod receive;
mod references;
mod status;
mod strangers;
mod tenant_routes;
mod traffic;
mod upload_room;
mod uploads;

pub(crate) use admin::{admin_routes, remote_admin_routes};
pub(crate) use connections::{ADMINS, Port, serve, serve_admin};

use crate::refusal::Refusal;
use crate::sampler::Sampler;
use crate::service::Service;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode, Uri};
use std::sync::Arc;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All routes. Whatever is under `/v1` is behind the token.
pub(crate) fn routes(service: Arc<Service>) -> Router {
    let tenant = Router::new()
        .route("/v1/guests", get(tenant_routes::list_guests))
        .route(
            "/v1/guests/{name}",
            get(tenant_routes::show_guest)
                .head(uploads::guest_offset)
                .put(uploads::put_guest)
                .delete(tenant_routes::delete_guest),
        )
        .route("/v1/guests/{name}/log", get(tenant_routes::guest_log))
        .route("/v1/models", get(tenant_routes::list_models))
        .route(
            "/v1/models/{name}",
            get(tenant_routes::show_model)
                .head(uploads::model_offset)
                .put(uploads::put_model)
                .delete(tenant_routes::delete_model),
        )
        .route("/v1/objects", get(tenant_routes::list_objects))
        .route("/v1/descriptions", post(tenant_routes::describe))
        .route("/v1/load", get(tenant_routes::load))
        .route("/v1/probe", get(probe::probe))
        .route("/v1/extractions", post(extractions::extract))
        .route("/v1/profiles", post(profiles::measure))
        .route("/v1/profiles/{model}", get(profiles::show))
        .route_layer(from_fn_with_state(Arc::clone(&service), envelope::authorize));
    Router::new()
        .merge(tenant)
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|uri: Uri| async move {
            Refusal::Route {
                path: uri.path().to_owned(),
            }
        })
        .method_not_allowed_fallback(|method: Method| async move {
            Refusal::Method {
                method: method.to_string(),
            }
        })
        .layer(from_fn(linger::linger))
        .layer(from_fn_with_state(Arc::clone(&service), envelope::observe))
        .layer(from_fn_with_state(
            Arc::new(Sampler::new(strangers::A_SECOND)),
            envelope::span,
        ))
        // Every handler that takes a body bounds it itself, by what it is.
        .layer(DefaultBodyLimit::disable())
        .with_state(service)
}

/// 200, and 503 once the host is stopping.
async fn ready(State(service): State<Arc<Service>>) -> (StatusCode, &'static str) {
    if service.scheduling.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}

/// `/metrics` with what each tenant had, for whoever runs the host; and how it is, where no stranger takes the room of who asks.
pub(crate) fn metrics_routes(service: Arc<Service>) -> Router {
    Router::new()
        .route("/metrics", get(metrics_by_tenant))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(service)
}

/// Metrics of the host as a whole.
async fn metrics(State(service): State<Arc<Service>>) -> Result<impl IntoResponse, Refusal> {
    let text = service.operations.exposition.text().map_err(Refusal::host)?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text))
}

/// Metrics of the host and of each tenant.
async fn metrics_by_tenant(State(service): State<Arc<Service>>) -> Result<impl IntoResponse, Refusal> {
    let text = service.operations.exposition.text_by_tenant();
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text.map_err(Refusal::host)?))
}
