use crate::refusal::Refusal;
use crate::service::Service;
use axum::extract::FromRequestParts;
use http::request::Parts;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Identity of an admin.
#[derive(Debug, Clone)]
pub(crate) enum Admin {
    /// User ID of the process at the other end of the admin socket.
    User(u32),
    /// Client with the token of a remote admin.
    Remote {
        /// Name of the admin.
        name: String,
        /// Address of the client.
        address: IpAddr,
    },
}

impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "admin uid {uid}"),
            Self::Remote { name, address } => write!(f, "admin {name} at {address}"),
        }
    }
}

impl Admin {
    /// Writes an audit entry for an action of this admin.
    pub(super) async fn audit(&self, service: &Service, what: &str, tenant: &str, detail: impl Into<String>) {
        let audit = &service.operations.audit;
        audit.admin(&self.to_string(), what, tenant, detail).await;
    }
}

impl FromRequestParts<Arc<Service>> for Admin {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Service>) -> Result<Self, Refusal> {
        parts.extensions.get().cloned().ok_or(Refusal::Unauthorized)
    }
}
