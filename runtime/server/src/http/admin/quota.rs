//! Handlers for the quota of a tenant.

use super::identity::Admin;
use super::tenants::{change_record, configured, unknown_tenant};
use crate::caller::budget_used;
use crate::http::answer::{Answer, OBJECT, answer_memory};
use crate::http::receive::json;
use crate::refusal::Refusal;
use crate::service::Service;
use crate::tenants::CONFIGURED;
use axum::extract::{Path, Request, State};
use frostline_wire::{QuotaChange, QuotaInfo, QuotaKey};
use std::sync::Arc;

/// Shows the quota of a tenant with the current usage.
pub(in crate::http) async fn show(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
) -> Result<Answer, Refusal> {
    let memory = answer_memory(&service, "", OBJECT).await?;
    Answer::json(&info(&service, &name)?, memory)
}

fn info(service: &Service, name: &str) -> Result<Vec<QuotaInfo>, Refusal> {
    let allowed = service.tenants.quota(name).ok_or_else(|| unknown_tenant(name))?;
    let counters = &service.operations.metrics.tenants;
    let today = service
        .operations
        .accounts
        .today_of(name, || counters.usage(name));
    let standing = service.scheduling.extractions.counts_by_tenant();
    let standing = standing.get(name).copied().unwrap_or_default();
    let library = &service.library;
    Ok(allowed.info(|key| match key {
        QuotaKey::Running => Some(standing.running as u64),
        QuotaKey::Queued => Some(standing.queued as u64),
        QuotaKey::StoredBytes => {
            let guests = library.guests.owned_by(name);
            let models = library.models.owned_by(name);
            Some(guests.bytes().saturating_add(models.bytes()))
        }
        _ => budget_used(key, &today),
    }))
}

/// Changes quota values of a tenant. `null` restores a default.
pub(in crate::http) async fn change(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
    request: Request,
) -> Result<Answer, Refusal> {
    let (change, memory) = json::<QuotaChange>(request, &service, None).await?;
    if name == CONFIGURED {
        return Err(configured("set the quota under [quota] in the configuration"));
    }
    for (key, value) in &change {
        let kept = value.map_or(Ok(()), |value| key.check(value));
        kept.map_err(|range| Refusal::request(range.to_string()))?;
    }
    change_record(&service, &name, |record| {
        for (key, value) in &change {
            match value {
                Some(value) => record.quota.values.insert(*key, *value),
                None => record.quota.values.remove(key),
            };
        }
        Ok(())
    })
    .await?;
    let words: Vec<String> = change
        .iter()
        .map(|(key, value)| match value {
            Some(value) => format!("{key}={value}"),
            None => format!("{key}=default"),
        })
        .collect();
    admin.audit(&service, "quota set", &name, words.join(" ")).await;
    Answer::json(&info(&service, &name)?, memory)
}
