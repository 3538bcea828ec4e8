//! Profiles: what a model takes on this host, measured on its lanes and kept.

mod reading;
mod samples;
mod task;

use crate::caller::Caller;
use crate::refusal::Refusal;
use crate::state::FindResult;
use crate::tenants::Tenant;
use frostline_wire::{Platform, Profile, ProfileRequest};
use std::time::Duration;
use task::Task;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// The longest one may measure, reading its samples included: twice what the figures themselves may take.
const MEASURING: Duration = Duration::from_secs(120);

/// The newest profile of the newest model of that name.
pub(crate) async fn newest(caller: &Caller, name: &str) -> Result<Profile, Refusal> {
    let (FindResult::Version(model), _) = caller.find_model(name, None) else {
        return Err(Refusal::not_found(format!("unknown model {name:?}")));
    };
    let folder = caller.machine().profiles.clone();
    let subject = task::subject(caller, &model.sha256);
    let stored = spawn_blocking(move || folder.newest::<Profile>(&subject)).await?;
    let here = stored.filter(|profile| {
        let rows = profile.platform.rows;
        profile.platform
            == Platform {
                rows,
                ..caller.machine().platform()
            }
    });
    here.ok_or_else(|| {
        Refusal::not_found(format!(
            "no profile of the model {name:?} from the last 30 days; create one with POST /v1/profiles, or with frostline profile"
        ))
    })
}

/// Measures what a request asks for, unless it was measured before and nothing it depends on has changed.
pub(crate) async fn profile(caller: &Caller, request: ProfileRequest) -> Result<Profile, Refusal> {
    caller.check_budgets()?;
    let wait = request.wait_seconds.map(Duration::from_secs);
    let task = Task::check(caller, request).await?;
    if let Some(stored) = task.stored(caller).await? {
        return Ok(stored);
    }
    let Tenant { name, allowed, .. } = caller.tenant();
    let turn = caller
        .scheduling()
        .measurement_turn(name, allowed.permits(), wait)
        .await?;
    // Whoever was before us may have asked the same.
    if let Some(stored) = task.stored(caller).await? {
        return Ok(stored);
    }
    let mut profile = timeout(MEASURING, task.measure(caller))
        .await
        .map_err(|_| Refusal::Deadline {
            seconds: MEASURING.as_secs(),
        })??;
    profile.disturbed = turn.disturbed();
    drop(turn);
    tracing::info!(
        model = task.model_name(),
        seconds = profile.measured_in_seconds,
        disturbed = profile.disturbed,
        "measured a model"
    );
    if !profile.disturbed {
        task.store(caller, &profile).await?;
    }
    Ok(profile)
}
