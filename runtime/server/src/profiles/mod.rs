//! Profiles: what a model takes on this host, measured on its lanes and kept.

mod reading;
mod samples;
mod task;

use crate::caller::Caller;
use crate::http::{self, Refusal};
use crate::state::Found;
use axum::Json;
use axum::extract::{Path, Request};
use frostline_wire::{Profile, ProfileRequest};
use std::time::Duration;
use task::Task;
use tokio::time::{Instant, timeout_at};

/// How often a profile that waits behind extractions looks whether they are gone.
const LOOK: Duration = Duration::from_millis(50);

/// `POST /v1/profiles`: answered from store while nothing it depends on has changed. Dropping this future cancels what was started.
pub(crate) async fn measure(caller: Caller, request: Request) -> Result<Json<Profile>, Refusal> {
    let deadline = Instant::now() + caller.config.wall;
    let request: ProfileRequest = http::json(request, &caller.config.limits).await?;
    tokio::select! {
        outcome = timeout_at(deadline, profile(&caller, request)) => outcome
            .map_err(|_| Refusal::Deadline { seconds: caller.config.wall.as_secs() })?
            .map(Json),
        () = caller.end.cancelled() => Err(Refusal::Stopping),
    }
}

/// `GET /v1/profiles/{model}`: the newest profile of the newest model of that name.
pub(crate) async fn show(caller: Caller, Path(name): Path<String>) -> Result<Json<Profile>, Refusal> {
    let (Found::Version(model), _) = caller.find_model(&name, None) else {
        return Err(Refusal::not_found(format!("this host has no model {name:?}")));
    };
    let place = caller.place();
    let folder = caller.profiles.clone();
    let stored = blocking(move || folder.newest::<Profile>(&model.sha256)).await?;
    stored
        .filter(|profile| profile.place == place)
        .map(Json)
        .ok_or_else(|| {
            Refusal::not_found(format!(
                "the model {name:?} was not measured on this host in the last 30 days; measure it with POST /v1/profiles, or with frostline profile"
            ))
        })
}

async fn profile(caller: &Caller, request: ProfileRequest) -> Result<Profile, Refusal> {
    let task = Task::check(caller, request).await?;
    if let Some(stored) = task.stored(caller).await? {
        return Ok(stored);
    }
    let _turn = caller.profiling.lock().await;
    // Whoever was before us may have asked the same.
    if let Some(stored) = task.stored(caller).await? {
        return Ok(stored);
    }
    while caller.admission.queued() > 0 {
        tokio::time::sleep(LOOK).await;
    }
    let place = caller
        .admission
        .enter(&caller.tenant().name, caller.tenant().allowed.places())
        .await?;
    let alone = || caller.admission.running() <= 1;
    let began_alone = alone();
    let profile = task.measure(caller).await?;
    let undisturbed = began_alone && alone();
    drop(place);
    tracing::info!(
        model = task.model_name(),
        seconds = profile.measured_in_seconds,
        undisturbed,
        "measured a model"
    );
    if undisturbed {
        task.store(caller, &profile).await?;
    }
    Ok(profile)
}

/// Runs work that reads files or counts, beside the network's tasks.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|lost| Refusal::host(format!("work of a profile was lost: {lost}")))
}
