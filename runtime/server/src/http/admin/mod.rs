//! The admin's interface, on a Unix socket: whoever may write to the socket's file is an admin. What changes something is audited.

mod activity;
mod quota;
mod tenants;
mod uploads;

use super::Refusal;
use crate::service::Service;
use axum::Router;
use axum::extract::FromRequestParts;
use axum::routing::{delete, get, post};
use http::request::Parts;
use std::sync::Arc;

/// Who asks: the system's number of the user at the other end of the socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admin {
    pub(super) uid: u32,
}

impl Admin {
    fn note(self, service: &Service, what: &str, tenant: &str, detail: impl Into<String>) {
        service
            .audit
            .note(&format!("admin uid {}", self.uid), what, tenant, detail);
    }
}

impl FromRequestParts<Arc<Service>> for Admin {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Service>) -> Result<Self, Refusal> {
        parts.extensions.get().copied().ok_or(Refusal::Unauthorized)
    }
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
        .route("/v1/tenants/{name}/guests", get(uploads::guests))
        .route("/v1/tenants/{name}/guests/{guest}", delete(uploads::remove_guest))
        .route("/v1/tenants/{name}/models", get(uploads::models))
        .route("/v1/tenants/{name}/models/{model}", delete(uploads::remove_model))
        .route("/v1/activity", get(activity::show))
        .route("/v1/drain", post(activity::drain))
        .route("/v1/audit", get(activity::audit))
        .fallback(|uri: http::Uri| async move {
            Refusal::Route {
                path: uri.path().to_owned(),
            }
        })
        .with_state(service)
}
