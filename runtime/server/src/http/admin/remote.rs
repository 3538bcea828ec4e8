//! Authentication of remote admins by token over TLS.

use super::identity::Admin;
use crate::config::{AdminConfig, AdminRole};
use crate::http::envelope::{bearer, throttle};
use crate::http::peer::Peer;
use crate::http::status::Payer;
use crate::refusal::Refusal;
use crate::scheduling::TenantMemory;
use crate::service::Service;
use crate::token::{TokenError, TokenFile};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::{Extension, Router};
use frostline_batching::Kind;
use http::{HeaderMap, Method};
use parking_lot::RwLock;
use std::sync::Arc;

/// Maximum length in bytes of a user's name from a proxy.
const LONGEST_USER: usize = 254;

/// Remote admins with their tokens. Clones share them.
#[derive(Clone)]
pub(crate) struct RemoteAdmins(Arc<RwLock<Vec<Arc<RemoteAdmin>>>>);

struct RemoteAdmin {
    config: AdminConfig,
    token: TokenFile,
}

impl RemoteAdmins {
    /// Reads the tokens of `admins`. Missing files are created with new tokens.
    pub(crate) fn open(admins: &[AdminConfig]) -> Result<Self, TokenError> {
        Ok(Self(Arc::new(RwLock::new(read(admins)?))))
    }

    /// Replaces all admins. If a token cannot be read, nothing changes.
    pub(crate) fn replace(&self, admins: &[AdminConfig]) -> Result<(), TokenError> {
        let read = read(admins)?;
        *self.0.write() = read;
        Ok(())
    }

    /// Reloads the tokens of files that have changed. Calls `told` with the outcome for each file.
    pub(crate) fn refresh(&self, told: impl Fn(&TokenFile, Result<bool, TokenError>)) {
        let admins = self.0.read().clone();
        for admin in admins {
            told(&admin.token, admin.token.refresh());
        }
    }

    fn find(&self, token: &str) -> Option<Arc<RemoteAdmin>> {
        let admins = self.0.read();
        admins
            .iter()
            .find(|admin| admin.token.admit(token).is_some())
            .cloned()
    }
}

fn read(admins: &[AdminConfig]) -> Result<Vec<Arc<RemoteAdmin>>, TokenError> {
    admins
        .iter()
        .map(|config| {
            let token = TokenFile::read_or_create(config.token_file.clone())?;
            let config = config.clone();
            Ok(Arc::new(RemoteAdmin { config, token }))
        })
        .collect()
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl AdminRole {
    /// Returns the least role that may send a request.
    fn required(method: &Method, path: &str) -> Self {
        match *method {
            Method::GET => Self::Read,
            _ if is_within(path, "/v1/tenants") || is_within(path, "/v1/jobs") => Self::Tenants,
            _ => Self::All,
        }
    }
}

impl RemoteAdmin {
    /// Checks that the token has not expired at `now`, and that the role suffices.
    fn check(&self, now: u64, request: &Request) -> Result<(), Refusal> {
        let AdminConfig {
            name,
            role,
            expires_at,
            ..
        } = &self.config;
        if let Some(at) = expires_at.filter(|at| now >= *at) {
            return Err(Refusal::AdminExpired {
                name: name.clone(),
                at,
            });
        }
        let required = AdminRole::required(request.method(), request.uri().path());
        if *role < required {
            return Err(Refusal::Role {
                name: name.clone(),
                role: *role,
                required,
            });
        }
        Ok(())
    }

    /// Returns the name for the audit: the admin's, or that of the user whom the proxy has authenticated.
    fn name(&self, headers: &HeaderMap) -> Result<String, Refusal> {
        let AdminConfig {
            name, user_header, ..
        } = &self.config;
        let Some(header) = user_header else {
            return Ok(name.clone());
        };
        let mut users = headers.get_all(header).iter();
        let user = users.next().and_then(|user| user.to_str().ok());
        match (
            user.filter(|user| !user.is_empty() && user.len() <= LONGEST_USER),
            users.next(),
        ) {
            (Some(user), None) => Ok(format!("{user} through {name}")),
            _ => Err(Refusal::request(format!(
                "the token of the admin {name} belongs to a proxy, which must name the user once in the header {header}"
            ))),
        }
    }
}

/// Requires the token of an admin for all `routes`.
pub(crate) fn behind_token(
    routes: Router<Arc<Service>>,
    service: Arc<Service>,
    admins: RemoteAdmins,
) -> Router<Arc<Service>> {
    routes.layer(from_fn_with_state((service, admins), authorize))
}

async fn authorize(
    State((service, admins)): State<(Arc<Service>, RemoteAdmins)>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let given = bearer(request.headers()).ok_or(Refusal::NotAdmin)?;
    let Some(admin) = admins.find(given) else {
        peer.permit.clear_tenant();
        throttle(&service, peer.address, "admin_listen")?;
        return Err(Refusal::NotAdmin);
    };
    peer.permit.assign_tenant("the admin");
    admin.check(service.clock.earliest(), &request)?;
    let name = admin.name(request.headers())?;
    let address = peer.address;
    request.extensions_mut().insert(Admin::Remote { name, address });
    let mut response = next.run(request).await;
    let payer = TenantMemory::new(&service.scheduling.memory, "", Kind::Request);
    response.extensions_mut().insert(Payer(payer));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Access, ROUTES};

    #[test]
    fn every_change_requires_a_role() {
        let mut required = Vec::new();
        for route in ROUTES.iter().filter(|route| route.access == Access::Admin) {
            let role = AdminRole::required(&route.method, route.path);
            assert_eq!(role == AdminRole::Read, route.method == Method::GET);
            if role == AdminRole::All {
                required.push((route.method.as_str(), route.path));
            }
        }
        assert_eq!(
            required,
            [
                ("PUT", "/v1/models/{model}"),
                ("DELETE", "/v1/models/{model}"),
                ("POST", "/v1/hosts/{name}/drain"),
                ("DELETE", "/v1/hosts/{name}/drain"),
                ("POST", "/v1/drain"),
                ("DELETE", "/v1/drain"),
            ]
        );
        assert_eq!(AdminRole::required(&Method::POST, "/v1/tenantsx"), AdminRole::All);
    }
}
