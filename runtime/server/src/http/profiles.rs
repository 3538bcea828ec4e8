//! Handlers of `/v1/profiles`.

use super::receive::json;
use crate::caller::Caller;
use crate::profiles;
use crate::refusal::Refusal;
use axum::Json;
use axum::extract::{Path, Request};
use frostline_wire::Profile;

/// Measures a model on this host, or returns the stored profile if it is still valid.
///
/// A stored profile is valid while nothing that it depends on has changed. Dropping this future cancels the
/// measurement.
pub(super) async fn measure(caller: Caller, request: Request) -> Result<Json<Profile>, Refusal> {
    let measure = async {
        let (request, _memory) = json(request, caller.service(), Some(&caller)).await?;
        profiles::profile(&caller, request).await
    };
    caller.with_timeout(measure).await.map(Json)
}

/// Returns the newest profile for the newest version of a model.
pub(super) async fn show(caller: Caller, Path(name): Path<String>) -> Result<Json<Profile>, Refusal> {
    profiles::newest(&caller, &name).await.map(Json)
}
