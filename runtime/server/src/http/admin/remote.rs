//! Admins from afar: by a token over TLS.

use super::identity::Admin;
use crate::http::envelope::{bearer, throttle};
use crate::http::peer::Peer;
use crate::refusal::Refusal;
use crate::service::Service;
use crate::token::TokenFile;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::{Extension, Router};
use std::sync::Arc;

/// `routes`, behind the admin's token.
pub(super) fn behind_token(routes: Router, service: Arc<Service>, token: Arc<TokenFile>) -> Router {
    routes.layer(from_fn_with_state((service, token), authorize))
}

async fn authorize(
    State((service, token)): State<(Arc<Service>, Arc<TokenFile>)>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let given = bearer(request.headers()).ok_or(Refusal::NotAdmin)?;
    if token.admit(given).is_none() {
        peer.permit.clear_tenant();
        throttle(&service, peer.address)?;
        return Err(Refusal::NotAdmin);
    }
    peer.permit.assign_tenant("the admin");
    request.extensions_mut().insert(Admin::Remote(peer.address));
    Ok(next.run(request).await)
}
