//! Tenants and their tokens.

use super::identity::Admin;
use crate::config::DataRoots;
use crate::http::receive::json;
use crate::http::references::checked_name;
use crate::refusal::Refusal;
use crate::service::Service;
use crate::tenants::{CONFIGURED, Fresh, MOST_TOKENS, TenantRecord};
use axum::Json;
use axum::extract::{Path, Request, State};
use frostline_profile::now;
use frostline_wire::{GivenToken, NewTenant, NewToken, TenantChange, TenantInfo, TokenInfo};
use http::StatusCode;
use std::sync::Arc;

pub(super) async fn list(State(service): State<Arc<Service>>) -> Json<Vec<TenantInfo>> {
    let tenants = service.tenants.records.list("");
    Json(tenants.iter().map(|(name, record)| info(name, record)).collect())
}

pub(super) async fn show(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
) -> Result<Json<TenantInfo>, Refusal> {
    let record = service.tenants.records.get(&name).ok_or_else(|| unknown(&name))?;
    Ok(Json(info(&name, &record)))
}

pub(super) async fn add(
    State(service): State<Arc<Service>>,
    admin: Admin,
    request: Request,
) -> Result<(StatusCode, Json<GivenToken>), Refusal> {
    let (new, _memory) = json::<NewTenant>(request, &service, None).await?;
    checked_name(&new.name)?;
    if new.name == CONFIGURED {
        return Err(Refusal::request(format!(
            "{CONFIGURED} is the tenant of the host's configuration; use another name"
        )));
    }
    let data = readable(&new.data)?;
    let fresh = fresh(&new.name, new.token_seconds)?;
    let record = service.tenants.records.update(&new.name, |now| match now {
        Some(_) => Err(Refusal::request(format!("tenant {:?} already exists", new.name))),
        None => Ok(Some(TenantRecord::new(data.clone(), fresh.kept.clone()))),
    });
    let record = record.await?.ok_or_else(|| unknown(&new.name))?;
    admin.note(&service, "tenant added", &new.name, new.data.join(" "));
    Ok((StatusCode::CREATED, Json(given(&new.name, &record, fresh))))
}

pub(super) async fn change(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<TenantInfo>, Refusal> {
    let (change, _memory) = json::<TenantChange>(request, &service, None).await?;
    let data = change.data.as_deref().map(readable).transpose()?;
    let record = change_record(&service, &name, |record| {
        record.data = data.clone().unwrap_or_else(|| std::mem::take(&mut record.data));
        record.disabled = change.disabled.unwrap_or(record.disabled);
        Ok(())
    });
    let record = record.await?;
    let detail = format!("disabled: {}, data: {}", record.disabled, record.data.join(" "));
    admin.note(&service, "tenant changed", &name, detail);
    Ok(Json(info(&name, &record)))
}

pub(super) async fn rotate(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
    request: Request,
) -> Result<(StatusCode, Json<GivenToken>), Refusal> {
    let (new, _memory) = json::<NewToken>(request, &service, None).await?;
    let fresh = fresh(&name, new.token_seconds)?;
    let until = new.others_seconds.map(|seconds| now().saturating_add(seconds));
    let record = change_record(&service, &name, |record| {
        // Done once, however often it is tried.
        if record.tokens.iter().all(|token| token.id != fresh.kept.id) {
            record.rotate(fresh.kept.clone(), until, now());
        }
        if record.tokens.len() > MOST_TOKENS {
            return Err(Refusal::request(format!(
                "tenant {name:?} has {MOST_TOKENS} tokens, the limit; revoke one first"
            )));
        }
        Ok(())
    });
    let record = record.await?;
    admin.note(&service, "token made", &name, fresh.kept.id.clone());
    Ok((StatusCode::CREATED, Json(given(&name, &record, fresh))))
}

pub(super) async fn revoke(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path((name, id)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    change_record(&service, &name, |record| {
        if !record.revoke(&id) {
            return Err(Refusal::not_found(format!(
                "unknown token {id:?} of tenant {name:?}; list its tokens with frostline admin tenant show"
            )));
        }
        Ok(())
    })
    .await?;
    admin.note(&service, "token revoked", &name, id);
    Ok(StatusCode::NO_CONTENT)
}

/// What the tenant uploaded goes first, so that a tenant of the same name never finds it.
pub(super) async fn remove(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    change_record(&service, &name, |record| {
        record.disabled = true;
        Ok(())
    })
    .await?;
    let (guests, models) = (service.library.guests.of(&name), service.library.models.of(&name));
    for (guest, _) in guests.list() {
        guests.delete(&guest).await?;
    }
    for (model, _) in models.list() {
        models.delete(&model).await?;
    }
    service.library.partials.forget(&name).await;
    service.operations.lines.forget(&name);
    let gone = |_: Option<&TenantRecord>| Ok::<_, Refusal>(None);
    service.tenants.records.update(&name, gone).await?;
    admin.note(&service, "tenant removed", &name, "");
    Ok(StatusCode::NO_CONTENT)
}

/// Changes the record of a tenant that there is, as it is now on all hosts.
pub(super) async fn change_record(
    service: &Service,
    name: &str,
    mut change: impl FnMut(&mut TenantRecord) -> Result<(), Refusal>,
) -> Result<Arc<TenantRecord>, Refusal> {
    let change = |now: Option<&TenantRecord>| {
        let mut record = now.cloned().ok_or_else(|| unknown(name))?;
        change(&mut record)?;
        Ok::<_, Refusal>(Some(record))
    };
    let record = service.tenants.records.update(name, change).await?;
    record.ok_or_else(|| unknown(name))
}

/// Roots as they are kept, if they can be read from.
fn readable(roots: &[String]) -> Result<Vec<String>, Refusal> {
    DataRoots::new(roots).map_err(|error| Refusal::request(error.to_string()))?;
    Ok(roots.to_vec())
}

fn fresh(tenant: &str, seconds: Option<u64>) -> Result<Fresh, Refusal> {
    let now = now();
    let expires_at = seconds.map(|seconds| now.saturating_add(seconds));
    Fresh::make(tenant, now, expires_at)
        .map_err(|error| Refusal::host(format!("cannot generate a token: {error}")))
}

fn given(name: &str, record: &TenantRecord, fresh: Fresh) -> GivenToken {
    GivenToken {
        tenant: info(name, record),
        token: fresh.text,
    }
}

fn info(name: &str, record: &TenantRecord) -> TenantInfo {
    let token = |token: &crate::tenants::KeptToken| TokenInfo {
        id: token.id.clone(),
        created_at: token.created_at,
        expires_at: token.expires_at,
    };
    TenantInfo {
        name: name.to_owned(),
        created_at: record.created_at,
        disabled: record.disabled,
        data: record.data.clone(),
        tokens: record.tokens.iter().map(token).collect(),
    }
}

pub(super) fn unknown(name: &str) -> Refusal {
    Refusal::not_found(format!(
        "unknown tenant {name:?}; list tenants with frostline admin tenant list"
    ))
}
