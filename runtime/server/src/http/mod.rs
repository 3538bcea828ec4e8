//! HTTP interface: routes, handlers, request bodies and answers.

mod admin;
mod answer;
mod answer_body;
mod connections;
mod envelope;
mod extractions;
mod intake;
mod linger;
mod metered;
mod network;
mod openapi;
mod operations;
mod pace;
mod peer;
mod permits;
mod probe;
mod profiles;
mod proxy;
mod queries;
mod receive;
mod references;
mod request_head;
mod route_content;
mod routes;
mod status;
mod strangers;
mod tenant_routes;
mod traffic;
mod upload_room;
mod uploads;

pub(crate) use admin::RemoteAdmins;
pub(crate) use connections::{MAX_ADMIN_CONNECTIONS, Port, serve, serve_admin};
pub use openapi::openapi;
pub use request_head::RequestHead;
pub use route_content::{Content, JsonType};
pub use routes::{Access, ROUTES, Route};

use crate::refusal::Refusal;
use crate::sampler::LogRateLimit;
use crate::scheduling::TenantMemory;
use crate::service::Service;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use frostline_batching::Kind;
use http::{Method, Uri};
use std::sync::Arc;

/// Creates the routes of the tenants' port.
pub(crate) fn tenant_routes(service: Arc<Service>) -> Router {
    let authorize = from_fn_with_state(Arc::clone(&service), envelope::authorize);
    let tenant = routes::router(Access::Tenant).route_layer(authorize);
    let all = with_fallbacks(tenant.merge(routes::router(Access::Anyone)));
    let strangers = service.scheduling.strangers();
    finish(all, &service, strangers)
        .layer(from_fn(linger::linger))
        .layer(from_fn_with_state(Arc::clone(&service), envelope::observe))
        .layer(from_fn_with_state(
            Arc::new(LogRateLimit::new(strangers::LINES_PER_SECOND)),
            envelope::span,
        ))
        .with_state(service)
}

/// Creates the routes of the admin socket.
pub(crate) fn admin_routes(service: Arc<Service>) -> Router {
    let admin = TenantMemory::new(&service.scheduling.memory, "", Kind::Request);
    let all = with_fallbacks(routes::router(Access::Admin));
    finish(all, &service, admin).with_state(service)
}

/// Creates the routes for remote admins, which require an admin token.
pub(crate) fn remote_admin_routes(service: Arc<Service>, admins: RemoteAdmins) -> Router {
    let all = with_fallbacks(routes::router(Access::Admin));
    let all = admin::behind_token(all, Arc::clone(&service), admins);
    let strangers = service.scheduling.strangers();
    finish(all, &service, strangers)
        .layer(from_fn(linger::linger))
        .with_state(service)
}

/// Creates the routes of the metrics port. Its `/metrics` and `/readyz` include the names of tenants and data
/// roots, and clients of the tenants' port cannot use up its connections.
pub(crate) fn metrics_routes(service: Arc<Service>) -> Router {
    let all = with_fallbacks(routes::router(Access::Operator));
    let strangers = service.scheduling.strangers();
    finish(all, &service, strangers).with_state(service)
}

/// Adds refusals of unknown paths and methods. Handlers enforce separate limits for request bodies.
fn with_fallbacks(router: Router<Arc<Service>>) -> Router<Arc<Service>> {
    router
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
        .layer(DefaultBodyLimit::disable())
}

/// Adds the middleware of all ports. `payer` pays for refusals of clients that have not authenticated.
fn finish(router: Router<Arc<Service>>, service: &Arc<Service>, payer: TenantMemory) -> Router<Arc<Service>> {
    router
        .layer(from_fn(envelope::refuse_ambiguous))
        .layer(from_fn_with_state((Arc::clone(service), payer), status::explain))
}
