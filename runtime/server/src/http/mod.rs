//! HTTP interface: routes, handlers, request bodies and answers.

mod admin;
mod answer_body;
mod connections;
mod envelope;
mod extractions;
mod intake;
mod linger;
mod network;
mod operations;
mod peer;
mod permits;
mod probe;
mod profiles;
mod proxy;
mod reading;
mod receive;
mod references;
mod request_head;
mod status;
mod strangers;
mod tenant_routes;
mod traffic;
mod upload_room;
mod uploads;

pub(crate) use admin::{AdminTokens, admin_routes, remote_admin_routes};
pub(crate) use connections::{MAX_ADMIN_CONNECTIONS, Port, serve, serve_admin};
pub use request_head::RequestHead;

use crate::refusal::Refusal;
use crate::sampler::LogRateLimit;
use crate::service::Service;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use http::{Method, Uri};
use std::sync::Arc;

/// Creates the routes for tenants. Everything under `/v1` requires a token.
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
        .route("/readyz", get(operations::ready))
        .route("/metrics", get(operations::metrics))
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
            Arc::new(LogRateLimit::new(strangers::LINES_PER_SECOND)),
            envelope::span,
        ))
        // Handlers enforce separate limits for request bodies.
        .layer(DefaultBodyLimit::disable())
        .with_state(service)
}

/// Creates the routes of the metrics port. Its `/metrics` and `/readyz` include the names of tenants and data
/// roots, and clients of the tenants' port cannot use up its connections.
pub(crate) fn metrics_routes(service: Arc<Service>) -> Router {
    Router::new()
        .route("/metrics", get(operations::metrics_by_tenant))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(operations::ready_by_root))
        .with_state(service)
}
