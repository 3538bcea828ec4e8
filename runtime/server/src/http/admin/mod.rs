//! Admin interface. Admins are users with write access to the host's Unix socket, and clients of the TLS
//! admin port with the admin token. All changes are audited.

mod activity;
mod identity;
mod jobs;
mod quota;
mod remote;
mod tenants;
mod uploads;
mod usage;

pub(super) use identity::Admin;
pub(crate) use remote::AdminTokens;

use crate::refusal::Refusal;
use crate::service::Service;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{delete, get, post, put};
use std::sync::Arc;
use uploads::{Guests, Models};

/// Creates all routes for remote admins, which require an admin token.
pub(crate) fn remote_admin_routes(service: Arc<Service>, tokens: AdminTokens) -> Router {
    remote::behind_token(admin_routes(Arc::clone(&service)), service, tokens)
}

/// Creates all admin routes.
pub(crate) fn admin_routes(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/tenants", get(tenants::list).post(tenants::add))
        .route(
            "/v1/tenants/{name}",
            get(tenants::show).patch(tenants::change).delete(tenants::remove),
        )
        .route("/v1/tenants/{name}/tokens", post(tenants::rotate))
        .route("/v1/tenants/{name}/tokens/{id}", delete(tenants::revoke))
        .route("/v1/tenants/{name}/quota", get(quota::show).patch(quota::change))
        .route("/v1/guests", get(uploads::list::<Guests>))
        .route(
            "/v1/tenants/{name}/guests/{guest}",
            get(uploads::show_guest)
                .patch(uploads::change_guest)
                .delete(uploads::remove::<Guests>),
        )
        .route("/v1/models", get(uploads::list::<Models>))
        .route(
            "/v1/models/{model}",
            put(uploads::publish).delete(uploads::withdraw),
        )
        .route(
            "/v1/tenants/{name}/models/{model}",
            delete(uploads::remove::<Models>),
        )
        .route("/v1/activity", get(activity::show))
        .route("/v1/jobs", get(jobs::list))
        .route("/v1/jobs/{id}", get(jobs::show).delete(jobs::cancel))
        .route("/v1/drain", post(activity::drain))
        .route("/v1/audit", get(activity::audit))
        .route("/v1/usage", get(usage::show))
        .fallback(|uri: http::Uri| async move {
            Refusal::Route {
                path: uri.path().to_owned(),
            }
        })
        // Handlers enforce separate limits for request bodies.
        .layer(DefaultBodyLimit::disable())
        .with_state(service)
}
