//! The admin's interface. Whoever may write to the file of the host's Unix socket is an admin, and whoever has the admin's token where
//! the host listens for it over TLS. What changes something is audited.

mod activity;
mod quota;
mod remote;
mod tenants;
mod uploads;

pub(crate) use remote::remote_admin_routes;

use crate::refusal::Refusal;
use crate::service::Service;
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::routing::{delete, get, post, put};
use http::request::Parts;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use uploads::{Guests, Models};

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Admin {
    /// The system's number of the user at the other end of the socket.
    User(u32),
    /// Whoever has the admin's token, at this address.
    Remote(IpAddr),
}

impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "admin uid {uid}"),
            Self::Remote(address) => write!(f, "admin at {address}"),
        }
    }
}

impl Admin {
    fn note(self, service: &Service, what: &str, tenant: &str, detail: impl Into<String>) {
        service
            .operations
            .audit
            .note(&self.to_string(), what, tenant, detail);
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
        .route("/v1/drain", post(activity::drain))
        .route("/v1/audit", get(activity::audit))
        .fallback(|uri: http::Uri| async move {
            Refusal::Route {
                path: uri.path().to_owned(),
            }
        })
        // Every handler that takes a body bounds it itself, by what it is.
        .layer(DefaultBodyLimit::disable())
        .with_state(service)
}
