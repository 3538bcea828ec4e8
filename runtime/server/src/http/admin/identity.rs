use crate::refusal::Refusal;
use crate::service::Service;
use axum::extract::FromRequestParts;
use http::request::Parts;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Admin {
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
    /// Writes down what was done.
    pub(super) async fn audit(self, service: &Service, what: &str, tenant: &str, detail: impl Into<String>) {
        let audit = &service.operations.audit;
        audit.admin(&self.to_string(), what, tenant, detail).await;
    }
}

impl FromRequestParts<Arc<Service>> for Admin {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Service>) -> Result<Self, Refusal> {
        parts.extensions.get().copied().ok_or(Refusal::Unauthorized)
    }
}
