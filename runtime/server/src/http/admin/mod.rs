//! The admin's interface. Whoever may write to the file of the host's Unix socket is an admin, and whoever has the admin's token where
//! the host listens for it over TLS. What changes something is audited.

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

/// All routes, for admins from afar.
pub(crate) fn remote_admin_routes(service: Arc<Service>, tokens: AdminTokens) -> Router {
    remote::behind_token(admin_routes(Arc::clone(&service)), service, tokens)
}

/// All routes.
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
        // Every handler that takes a body bounds it itself, by what it is.
        .layer(DefaultBodyLimit::disable())
        .with_state(service)
}
