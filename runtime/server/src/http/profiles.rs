//! Handlers of `/v1/profiles`.

use super::answer::{Answer, OBJECT};
use super::receive::json;
use crate::caller::Caller;
use crate::profiles;
use crate::refusal::Refusal;
use axum::extract::{Path, Request};

/// Measures a model on this host, or returns the stored profile if it is still valid.
///
/// A stored profile is valid while nothing that it depends on has changed. Dropping this future cancels the
/// measurement.
pub(super) async fn measure(caller: Caller, request: Request) -> Result<Answer, Refusal> {
    let measure = async {
        let (request, memory) = json(request, caller.service(), Some(&caller)).await?;
        Answer::json(&profiles::profile(&caller, request).await?, memory)
    };
    caller.with_timeout(measure).await
}

/// Returns the newest profile for the newest version of a model.
pub(super) async fn show(caller: Caller, Path(name): Path<String>) -> Result<Answer, Refusal> {
    let profile = profiles::newest(&caller, &name).await?;
    Answer::json(&profile, caller.answer_memory(OBJECT).await?)
}
