//! What tenants uploaded.

use super::Admin;
use super::tenants::unknown;
use crate::http::Refusal;
use crate::service::Service;
use crate::state::{Facts, Owned, Stored};
use axum::Json;
use axum::extract::{Path, State};
use frostline_wire::{GuestInfo, ModelInfo};
use http::StatusCode;
use std::sync::Arc;

pub(super) async fn guests(
    State(service): State<Arc<Service>>,
    Path(tenant): Path<String>,
) -> Result<Json<Vec<GuestInfo>>, Refusal> {
    list(
        &service,
        &tenant,
        &service.state.guests.of(&tenant),
        Stored::<()>::info,
    )
    .map(Json)
}

pub(super) async fn models(
    State(service): State<Arc<Service>>,
    Path(tenant): Path<String>,
) -> Result<Json<Vec<ModelInfo>>, Refusal> {
    list(
        &service,
        &tenant,
        &service.state.models.of(&tenant),
        |stored, name| stored.info(name),
    )
    .map(Json)
}

pub(super) async fn remove_guest(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path((tenant, name)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    remove(
        &service,
        admin,
        &service.state.guests.of(&tenant),
        "guest",
        (&tenant, &name),
    )
    .await
}

pub(super) async fn remove_model(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path((tenant, name)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    remove(
        &service,
        admin,
        &service.state.models.of(&tenant),
        "model",
        (&tenant, &name),
    )
    .await
}

fn list<F: Facts, I>(
    service: &Service,
    tenant: &str,
    shelf: &Owned<'_, F>,
    info: impl Fn(&Stored<F>, &str) -> I,
) -> Result<Vec<I>, Refusal> {
    service.tenants.allowed(tenant).ok_or_else(|| unknown(tenant))?;
    let infos = shelf
        .list()
        .into_iter()
        .map(|(name, stored)| info(&stored, &name));
    Ok(infos.collect())
}

async fn remove<F: Facts>(
    service: &Service,
    admin: Admin,
    shelf: &Owned<'_, F>,
    what: &str,
    (tenant, name): (&str, &str),
) -> Result<StatusCode, Refusal> {
    if !shelf.delete(name).await? {
        return Err(Refusal::not_found(format!(
            "the tenant {tenant:?} has no {what} {name:?}"
        )));
    }
    admin.note(service, &format!("{what} removed"), tenant, name);
    Ok(StatusCode::NO_CONTENT)
}
