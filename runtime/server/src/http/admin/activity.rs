//! What goes on, what went on, and the end of it.

use super::Admin;
use crate::blocking::blocking;
use crate::http::tenant_routes::query;
use crate::refusal::Refusal;
use crate::service::Service;
use axum::Json;
use axum::extract::State;
use frostline_wire::{Activity, AuditEntry};
use http::Uri;
use serde::Deserialize;
use std::sync::Arc;

/// Entries of the audit at once.
const ENTRIES: usize = 100_000;

/// `?tenant=&limit=`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    tenant: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn show(State(service): State<Arc<Service>>) -> Json<Activity> {
    Json(service.activity())
}

/// Takes no new work; what runs goes on to its end.
pub(super) async fn drain(State(service): State<Arc<Service>>, admin: Admin) -> Json<Activity> {
    service.admission.stop();
    admin.note(&service, "host drained", "", "");
    Json(service.activity())
}

pub(super) async fn audit(
    State(service): State<Arc<Service>>,
    uri: Uri,
) -> Result<Json<Vec<AuditEntry>>, Refusal> {
    let wanted: Wanted = query(&uri)?;
    let limit = wanted.limit.unwrap_or(ENTRIES).min(ENTRIES);
    let read = move || service.audit.last(wanted.tenant.as_deref(), limit);
    let entries = blocking(read).await?;
    entries
        .map(Json)
        .map_err(|error| Refusal::host(format!("the audit cannot be read: {error}")))
}
