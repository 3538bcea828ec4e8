//! `/v1/profiles`: what a model takes on this host.

use super::receive::json;
use crate::caller::Caller;
use crate::profiles;
use crate::refusal::Refusal;
use axum::Json;
use axum::extract::{Path, Request};
use frostline_wire::Profile;

/// Measures what a model takes on this host, or answers the stored profile.
///
/// Answered from store while nothing it depends on has changed. Dropping this future cancels what was started.
pub(super) async fn measure(caller: Caller, request: Request) -> Result<Json<Profile>, Refusal> {
    let measure = async {
        let (request, _memory) = json(request, caller.service(), Some(&caller)).await?;
        profiles::profile(&caller, request).await
    };
    caller.with_timeout(measure).await.map(Json)
}

/// The newest profile of the newest model of that name.
pub(super) async fn show(caller: Caller, Path(name): Path<String>) -> Result<Json<Profile>, Refusal> {
    profiles::newest(&caller, &name).await.map(Json)
}
