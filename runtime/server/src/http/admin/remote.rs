//! Authentication of remote admins by token over TLS.

use super::identity::Admin;
use crate::http::envelope::{bearer, throttle};
use crate::http::peer::Peer;
use crate::http::status::Payer;
use crate::refusal::Refusal;
use crate::scheduling::TenantMemory;
use crate::service::Service;
use crate::token::TokenFile;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::{Extension, Router};
use frostline_batching::Kind;
use http::Method;
use std::sync::Arc;

/// Token files of remote admins.
#[derive(Clone)]
pub(crate) struct AdminTokens {
    /// Token with full access.
    pub(crate) full: Arc<TokenFile>,
    /// Read-only token, if configured.
    pub(crate) read_only: Option<Arc<TokenFile>>,
}

impl AdminTokens {
    /// Returns the token files that are reloaded on changes.
    pub(crate) fn files(&self) -> impl Iterator<Item = Arc<TokenFile>> {
        [Some(Arc::clone(&self.full)), self.read_only.clone()]
            .into_iter()
            .flatten()
    }
}

/// Requires an admin token for all `routes`.
pub(in crate::http) fn behind_token(
    routes: Router<Arc<Service>>,
    service: Arc<Service>,
    tokens: AdminTokens,
) -> Router<Arc<Service>> {
    routes.layer(from_fn_with_state((service, tokens), authorize))
}

async fn authorize(
    State((service, tokens)): State<(Arc<Service>, AdminTokens)>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let given = bearer(request.headers()).ok_or(Refusal::NotAdmin)?;
    let admits = |token: &Arc<TokenFile>| token.admit(given).is_some();
    let (all, read) = (
        admits(&tokens.full),
        tokens.read_only.as_ref().is_some_and(admits),
    );
    if !all && !read {
        peer.permit.clear_tenant();
        throttle(&service, peer.address, "admin_listen")?;
        return Err(Refusal::NotAdmin);
    }
    peer.permit.assign_tenant("the admin");
    if all {
        request.extensions_mut().insert(Admin::Remote(peer.address));
    } else if request.method() != Method::GET {
        return Err(Refusal::ReadOnly);
    }
    let mut response = next.run(request).await;
    let payer = TenantMemory::new(&service.scheduling.memory, "", Kind::Request);
    response.extensions_mut().insert(Payer(payer));
    Ok(response)
}
