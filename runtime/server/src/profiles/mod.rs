//! Profiles contain the measured costs of a model on the lanes of this host, and are stored.

mod reading;
mod samples;
mod task;

use crate::caller::Caller;
use crate::refusal::Refusal;
use crate::tenants::Tenant;
use frostline_state::FindResult;
use frostline_wire::{Platform, Profile, ProfileRequest};
use std::time::Duration;
use task::ProfileTask;
use tokio::time::timeout;

/// Maximum duration of a measurement, including the time to read samples. The limit is twice the deadline of
/// the measurement on the lanes.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the newest profile of the newest version of the model `name`. Only profiles for the current
/// platform count.
pub(crate) async fn newest(caller: &Caller, name: &str) -> Result<Profile, Refusal> {
    let (FindResult::Version(model), _) = caller.find_model(name, None) else {
        return Err(Refusal::not_found(format!("unknown model {name:?}")));
    };
    let folder = caller.machine().profiles.clone();
    let subject = task::subject(caller, &model.sha256);
    let permit = caller.description_permit().await?;
    let stored = caller
        .run_blocking(permit, move |_| {
            Ok::<_, Refusal>(folder.newest::<Profile>(&subject))
        })
        .await?;
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

/// Measures the profile that `request` describes. Returns a stored profile if it is still valid for the same
/// inputs.
pub(crate) async fn profile(caller: &Caller, request: ProfileRequest) -> Result<Profile, Refusal> {
    caller.check_budgets()?;
    let wait = request.wait_seconds.map(Duration::from_secs);
    let task = ProfileTask::check(caller, request).await?;
    if let Some(stored) = task.stored(caller).await? {
        return Ok(stored);
    }
    let prepared = task.prepare(caller).await?;
    let Tenant { name, quota, .. } = caller.tenant();
    let turn = caller
        .scheduling()
        .measurement_turn(name, quota.permits(), wait)
        .await?;
    // The previous request may have measured the same profile.
    if let Some(stored) = task.stored(caller).await? {
        return Ok(stored);
    }
    let mut profile = timeout(MEASURE_TIMEOUT, task.measure(caller, prepared))
        .await
        .map_err(|_| Refusal::Deadline {
            seconds: MEASURE_TIMEOUT.as_secs(),
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
