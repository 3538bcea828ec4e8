//! Handlers for tenants and tokens.

use super::identity::Admin;
use crate::config::DataRoots;
use crate::http::answer::{Answer, OBJECT, PAGE, answer_memory};
use crate::http::queries::RemovalQuery;
use crate::http::receive::json;
use crate::http::references::{checked_name, query};
use crate::refusal::Refusal;
use crate::service::Service;
use crate::tenants::{CONFIGURED, IssuedToken, MAX_TOKENS, Revocation, TenantRecord};
use axum::extract::{Path, Request, State};
use frostline_wire::{
    GivenToken, NewTenant, NewToken, Removal, Revoked, TenantChange, TenantInfo, TokenInfo,
};
use http::{StatusCode, Uri};
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Default lifetime of a tenant's first token in seconds. Without a limit, forgotten tokens are valid forever.
const TOKEN_SECONDS: u64 = 90 * 24 * 3600;

/// Time that a revocation waits for the state before it is answered.
const STATE_TIMEOUT: Duration = Duration::from_secs(3);

/// Lists all tenants.
pub(in crate::http) async fn list(State(service): State<Arc<Service>>) -> Result<Answer, Refusal> {
    let memory = answer_memory(&service, "", PAGE).await?;
    let all = service.tenants.all();
    let all = all.map(|(name, record)| info(&name, &record));
    Ok(Answer::list(all, memory))
}

/// Shows a tenant. Tokens are listed without secrets.
pub(in crate::http) async fn show(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
) -> Result<Answer, Refusal> {
    let record = existing(&service, &name)?;
    let memory = answer_memory(&service, "", OBJECT).await?;
    Answer::json(&info(&name, &record), memory)
}

/// Adds a tenant and returns a token, which is never shown again.
pub(in crate::http) async fn add(
    State(service): State<Arc<Service>>,
    admin: Admin,
    request: Request,
) -> Result<Answer, Refusal> {
    let (new, memory) = json::<NewTenant>(request, &service, None).await?;
    checked_name(&new.name)?;
    if new.name == CONFIGURED {
        return Err(configured("use another name"));
    }
    let data = checked_roots(&service, &new.name, &new.data, new.unchecked).await?;
    check_lifetime(new.token_seconds)?;
    let seconds = new.token_seconds.unwrap_or(TOKEN_SECONDS);
    let issued = issue_token(&service, &new.name, Some(seconds))?;
    let record = service.tenants.records.update(&new.name, |now| match now {
        Some(record) if record.kept_until.is_some() => Err(was_removed(&new.name)),
        Some(_) => Err(Refusal::request(format!("tenant {:?} already exists", new.name))),
        None => Ok(Some(TenantRecord::new(data.clone(), issued.stored.clone()))),
    });
    let record = record.await?.ok_or_else(|| unknown_tenant(&new.name))?;
    admin
        .audit(&service, "tenant added", &new.name, new.data.join(" "))
        .await;
    let token = with_token(&new.name, &record, issued);
    Ok(Answer::json(&token, memory)?.with_status(StatusCode::CREATED))
}

/// Changes a tenant: sets the data roots, disables the tenant, enables it, or restores it after a removal.
pub(in crate::http) async fn change(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
    request: Request,
) -> Result<Answer, Refusal> {
    let (change, memory) = json::<TenantChange>(request, &service, None).await?;
    if name == CONFIGURED && change.data.is_some() {
        return Err(configured("change data in the configuration instead"));
    }
    let data = match &change.data {
        Some(roots) => Some(checked_roots(&service, &name, roots, change.unchecked).await?),
        None => None,
    };
    if change.removed == Some(true) {
        return Err(Refusal::request(
            "removed can only be false, to restore a tenant; send a DELETE request to remove one",
        ));
    }
    let restores = change.removed.is_some();
    let now = service.clock.latest();
    let record = update_record(&service, &name, |record| {
        match record.kept_until {
            None => {}
            Some(until) if restores && now < until => record.kept_until = None,
            Some(_) if restores => {
                return Err(Refusal::request(format!(
                    "the tenant {name:?} is being deleted and cannot be restored"
                )));
            }
            Some(_) => return Err(was_removed(&name)),
        }
        record.data = data.clone().unwrap_or_else(|| std::mem::take(&mut record.data));
        record.disabled = change.disabled.unwrap_or(record.disabled);
        Ok(())
    });
    record.await?;
    let record = existing(&service, &name)?;
    let detail = format!("disabled: {}, data: {}", record.disabled, record.data.join(" "));
    let what = if restores {
        "tenant restored"
    } else {
        "tenant changed"
    };
    admin.audit(&service, what, &name, detail).await;
    Answer::json(&info(&name, &record), memory)
}

/// Creates another token, valid as long as the previous one unless the request sets a lifetime. The request
/// can also limit how long the other tokens remain valid.
pub(in crate::http) async fn rotate(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
    request: Request,
) -> Result<Answer, Refusal> {
    let (new, memory) = json::<NewToken>(request, &service, None).await?;
    if name == CONFIGURED {
        return Err(configured("change the token in token_file instead"));
    }
    check_lifetime(new.token_seconds)?;
    let mut issued = issue_token(&service, &name, None)?;
    let until = new
        .others_seconds
        .map(|seconds| service.clock.latest().saturating_add(seconds));
    let record = change_record(&service, &name, |record| {
        // The closure may be called again after a conflict and must add the token only once.
        if record.tokens.iter().all(|token| token.id != issued.stored.id) {
            let seconds = new.token_seconds.or(record.lifetime());
            issued.stored.expires_at = expiry(issued.stored.created_at, seconds);
            record.rotate(issued.stored.clone(), until);
        }
        if record.tokens.len() > MAX_TOKENS && service.clock.is_confirmed() {
            record.forget_expired(service.clock.now());
        }
        if record.tokens.len() > MAX_TOKENS {
            return Err(Refusal::request(format!(
                "tenant {name:?} has {MAX_TOKENS} tokens, the maximum; revoke a token first"
            )));
        }
        Ok(())
    });
    let record = record.await?;
    admin
        .audit(&service, "token made", &name, issued.stored.id.clone())
        .await;
    let token = with_token(&name, &record, issued);
    Ok(Answer::json(&token, memory)?.with_status(StatusCode::CREATED))
}

/// Revokes a token. For the configured tenant, this is the token in this host's token file. This host refuses it at
/// once, and all hosts with the same state when the state is written. If the state does not answer within three
/// seconds, this host writes it later, also after a restart. The answer lists the hosts that may still accept the
/// token.
pub(in crate::http) async fn revoke(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path((name, id)): Path<(String, String)>,
) -> Result<Answer, Refusal> {
    let memory = answer_memory(&service, "", OBJECT).await?;
    let record = existing(&service, &name)?;
    let token = record.tokens.iter().find(|token| token.id == id);
    let revocation = Revocation {
        tenant: name.clone(),
        id: id.clone(),
        in_file: token.filter(|_| name == CONFIGURED).cloned(),
    };
    let pending = match token {
        Some(_) => revoke_at_once(&service, &revocation).await?,
        // Another host may have created it.
        None => {
            service.tenants.write_revocation(&revocation).await?;
            None
        }
    };
    admin.audit(&service, "token revoked", &name, id).await;
    let unaware = service.fleet.other_names(pending.is_none()).await;
    Answer::json(&Revoked { pending, unaware }, memory)
}

/// Revokes a token on this host, and then in the state. Returns the reason if the state could not be written yet.
async fn revoke_at_once(service: &Service, revocation: &Revocation) -> Result<Option<String>, Refusal> {
    let tenants = &service.tenants;
    let revocations = &tenants.revocations;
    let lost = revocations.add(revocation.clone()).await?;
    let written = timeout(STATE_TIMEOUT, tenants.write_revocation(revocation)).await;
    match written
        .map_err(|_| {
            let seconds = STATE_TIMEOUT.as_secs();
            Refusal::host(format!("the state did not answer within {seconds} s"))
        })
        .flatten()
    {
        Ok(()) => {
            revocations.remove(revocation).await;
            Ok(None)
        }
        Err(refusal @ (Refusal::NotFound { .. } | Refusal::Request { .. })) => {
            revocations.remove(revocation).await;
            Err(refusal)
        }
        Err(refusal) => {
            let lost = lost.map(|lost| format!("; a restart of this host admits the token again: {lost}"));
            Ok(Some(format!("{refusal}{}", lost.unwrap_or_default())))
        }
    }
}

/// Removes a tenant and refuses all its tokens. The tenant can be restored for a week, unless the host is
/// configured otherwise, and is then deleted with all guests, models and tokens.
pub(in crate::http) async fn remove(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Answer, Refusal> {
    let RemovalQuery { erase } = query(&uri)?;
    let memory = answer_memory(&service, "", OBJECT).await?;
    if name == CONFIGURED {
        return Err(Refusal::request(format!(
            "{CONFIGURED} is the tenant of the host's configuration and cannot be removed; disable it (frostline admin tenant disable \
             {CONFIGURED})"
        )));
    }
    let period = service.config.limits.removed_tenant.as_secs();
    let erase = erase || period == 0;
    let kept_until = match erase {
        // No clock is before this time, so the tenant cannot be restored while it is deleted.
        true => 0,
        false => service.clock.latest().saturating_add(period),
    };
    update_record(&service, &name, |record| match record.kept_until {
        Some(_) if !erase => Err(was_removed(&name)),
        _ => {
            record.kept_until = Some(kept_until);
            Ok(())
        }
    })
    .await?;
    let removed = name.clone();
    service
        .library
        .partials
        .retain_tenants(move |tenant| tenant != removed)
        .await;
    if erase {
        service.erase_tenant(&name).await?;
        service.prune().await;
    }
    let what = if erase { "tenant erased" } else { "tenant removed" };
    admin.audit(&service, what, &name, "").await;
    let kept_until = Some(kept_until).filter(|_| !erase);
    Answer::json(&Removal { kept_until }, memory)
}

/// Applies `change` to the current record of an existing tenant that was not removed. May call it again if another
/// host changes the record at the same time.
pub(super) async fn change_record(
    service: &Service,
    name: &str,
    mut change: impl FnMut(&mut TenantRecord) -> Result<(), Refusal>,
) -> Result<Arc<TenantRecord>, Refusal> {
    update_record(service, name, |record| match record.kept_until {
        Some(_) => Err(was_removed(name)),
        None => change(record),
    })
    .await
}

/// Like [`change_record`], for removed tenants as well.
async fn update_record(
    service: &Service,
    name: &str,
    mut change: impl FnMut(&mut TenantRecord) -> Result<(), Refusal>,
) -> Result<Arc<TenantRecord>, Refusal> {
    let updated = service.tenants.records.update(name, |now| {
        let configured = (name == CONFIGURED).then(TenantRecord::configured);
        let mut record = now.cloned().or(configured).ok_or_else(|| unknown_tenant(name))?;
        change(&mut record)?;
        Ok::<_, Refusal>(Some(record))
    });
    updated.await?.ok_or_else(|| unknown_tenant(name))
}

/// Validates data roots and checks that each one answers, unless `unchecked` is set.
async fn checked_roots(
    service: &Service,
    tenant: &str,
    roots: &[String],
    unchecked: bool,
) -> Result<Vec<String>, Refusal> {
    let parsed = DataRoots::new(roots).map_err(|error| Refusal::request(error.to_string()))?;
    if unchecked {
        return Ok(roots.to_vec());
    }
    for root in parsed.iter() {
        // Open a separate store: a root that is not granted must leave no trace in caches and metrics.
        let root = service.operations.roots.root_for(root, tenant);
        if root.check().await.map_err(unusable_root)? {
            return Err(unusable_root(format!(
                "found no objects in '{root}', so the prefix may be misspelled"
            )));
        }
    }
    Ok(roots.to_vec())
}

fn issue_token(service: &Service, tenant: &str, seconds: Option<u64>) -> Result<IssuedToken, Refusal> {
    let now = service.clock.latest();
    IssuedToken::issue(tenant, now, expiry(now, seconds))
        .map_err(|error| Refusal::host(format!("cannot generate a token: {error}")))
}

/// Refuses a lifetime of 0, with which a token is never valid.
fn check_lifetime(seconds: Option<u64>) -> Result<(), Refusal> {
    match seconds {
        Some(0) => Err(Refusal::request(
            "invalid token_seconds 0: the token would never be valid; set 1 or more",
        )),
        _ => Ok(()),
    }
}

/// Returns the expiry of a token with a lifetime of `seconds`, or `None` if it never expires.
fn expiry(now: u64, seconds: Option<u64>) -> Option<u64> {
    seconds.and_then(|seconds| now.checked_add(seconds))
}

/// Creates the refusal to add or change the configured tenant.
pub(super) fn configured(advice: &str) -> Refusal {
    Refusal::request(format!(
        "{CONFIGURED} is the tenant of the host's configuration; {advice}"
    ))
}

/// Returns the record of an existing tenant.
fn existing(service: &Service, name: &str) -> Result<Arc<TenantRecord>, Refusal> {
    service.tenants.record(name).ok_or_else(|| unknown_tenant(name))
}

fn with_token(name: &str, record: &TenantRecord, issued: IssuedToken) -> GivenToken {
    GivenToken {
        tenant: info(name, record),
        token: issued.text,
    }
}

fn info(name: &str, record: &TenantRecord) -> TenantInfo {
    TenantInfo {
        name: name.to_owned(),
        created_at: record.created_at,
        disabled: record.disabled,
        data: record.data.clone(),
        tokens: record
            .tokens
            .iter()
            .map(|token| TokenInfo {
                id: token.id.clone(),
                created_at: token.created_at,
                expires_at: token.expires_at,
            })
            .collect(),
        kept_until: record.kept_until,
    }
}

/// Creates the refusal to use a tenant that was removed and is still kept.
fn was_removed(name: &str) -> Refusal {
    Refusal::request(format!(
        "the tenant {name:?} was removed; restore it (frostline admin tenant restore {name}), or remove it again with the option to \
         erase it"
    ))
}

pub(super) fn unknown_tenant(name: &str) -> Refusal {
    Refusal::not_found(format!(
        "unknown tenant {name:?}; list tenants with frostline admin tenant list"
    ))
}

fn unusable_root(error: impl Display) -> Refusal {
    Refusal::request(format!(
        "{error}; set unchecked to grant the root without this check"
    ))
}
