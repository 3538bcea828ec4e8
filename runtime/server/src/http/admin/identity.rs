use crate::refusal::Refusal;
use crate::service::Service;
use axum::extract::FromRequestParts;
use http::request::Parts;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Identity of an admin.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Admin {
    /// User ID of the process at the other end of the admin socket.
    User(u32),
    /// Remote address. The client has the token of remote admins.
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
    /// Writes an audit entry for an action of this admin.
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
