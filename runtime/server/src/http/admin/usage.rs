//! Handler for the usage of tenants.

use crate::accounting::counters;
use crate::http::answer::{Answer, PAGE, answer_memory};
use crate::http::queries::UsageQuery;
use crate::http::references::query;
use crate::refusal::Refusal;
use crate::service::Service;
use axum::extract::State;
use frostline_state::Day;
use http::Uri;
use std::sync::Arc;

/// Shows the daily usage of tenants, summed over all hosts. `?from=` and `?to=` select days, both included,
/// and default to today. `?tenant=` selects a tenant.
pub(in crate::http) async fn show(State(service): State<Arc<Service>>, uri: Uri) -> Result<Answer, Refusal> {
    let UsageQuery { from, to, tenant } = query(&uri)?;
    let today = service.clock.today();
    let from = from.as_deref().map_or(Ok(today), day)?;
    let to = to.as_deref().map_or(Ok(today), day)?;
    let accounts = &service.operations.accounts;
    let written = accounts.write_now(|| counters(&service)).await;
    written.map_err(|error| Refusal::host(format!("cannot write this host's usage: {error}")))?;
    let mut usage = accounts.read(from, to).await?;
    usage.retain(|row| tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant));
    Ok(Answer::list(usage, answer_memory(&service, "", PAGE).await?))
}

fn day(name: &str) -> Result<Day, Refusal> {
    Day::parse(name)
        .ok_or_else(|| Refusal::request(format!("invalid day {name:?}: write it like 2026-11-26")))
}
