//! What tenants uploaded, and the models that an admin offers to all of them.

use super::identity::Admin;
use super::tenants::unknown;
use crate::http::intake::{Upload, receive};
use crate::http::receive::json;
use crate::http::references::{checked_name, query};
use crate::http::uploads::{Checked, status};
use crate::refusal::Refusal;
use crate::service::Service;
use crate::state::{Facts, ModelFacts, Named, SHARED, Shelf, Stored};
use axum::Json;
use axum::extract::{Path, Request, State};
use frostline_wire::{GuestChange, UploadInfo, UploadVersion};
use http::{StatusCode, Uri};
use serde::Deserialize;
use std::sync::Arc;

/// Guests or models: what is uploaded is looked after alike.
pub(super) trait Kind {
    /// What they say of themselves.
    type Facts: Facts;
    /// One of them.
    const WORD: &'static str;
    /// All of them.
    fn shelf(service: &Service) -> &Shelf<Self::Facts>;
}

pub(super) struct Guests;

impl Kind for Guests {
    type Facts = ();
    const WORD: &'static str = "guest";

    fn shelf(service: &Service) -> &Shelf<()> {
        &service.library.guests
    }
}

pub(super) struct Models;

impl Kind for Models {
    type Facts = ModelFacts;
    const WORD: &'static str = "model";

    fn shelf(service: &Service) -> &Shelf<ModelFacts> {
        &service.library.models
    }
}

/// `?tenant=`: its alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    tenant: Option<String>,
}

/// All there are, shared ones first.
pub(super) async fn list<K: Kind>(
    State(service): State<Arc<Service>>,
    uri: Uri,
) -> Result<Json<Vec<UploadInfo>>, Refusal> {
    let wanted: Wanted = query(&uri)?;
    let named = match &wanted.tenant {
        Some(tenant) => {
            service.tenants.allowed(tenant).ok_or_else(|| unknown(tenant))?;
            K::shelf(&service).of(tenant).names()
        }
        None => K::shelf(&service).all(),
    };
    let mut infos: Vec<UploadInfo> = named.into_iter().map(info).collect();
    infos.sort_by(|one, other| (&one.tenant, &one.name).cmp(&(&other.tenant, &other.name)));
    Ok(Json(infos))
}

pub(super) async fn show_guest(
    State(service): State<Arc<Service>>,
    Path((tenant, name)): Path<(String, String)>,
) -> Result<Json<UploadInfo>, Refusal> {
    shown::<Guests>(&service, &tenant, &name).map(Json)
}

pub(super) async fn change_guest(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path((tenant, name)): Path<(String, String)>,
    request: Request,
) -> Result<Json<UploadInfo>, Refusal> {
    let (GuestChange { disabled }, _memory) = json(request, &service, None).await?;
    if !service
        .library
        .guests
        .of(&tenant)
        .disable(&name, disabled)
        .await?
    {
        return Err(none::<Guests>(&tenant, &name));
    }
    let what = if disabled {
        "guest disabled"
    } else {
        "guest enabled"
    };
    admin.note(&service, what, &tenant, name.clone());
    shown::<Guests>(&service, &tenant, &name).map(Json)
}

pub(super) async fn remove<K: Kind>(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path((tenant, name)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    // What is shared has an address of its own.
    if tenant == SHARED || !K::shelf(&service).of(&tenant).delete(&name).await? {
        return Err(none::<K>(&tenant, &name));
    }
    admin.note(&service, &format!("{} removed", K::WORD), &tenant, name);
    Ok(StatusCode::NO_CONTENT)
}

/// Offers a model to all tenants, checked like theirs.
pub(super) async fn publish(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
    request: Request,
) -> Result<(StatusCode, Json<UploadInfo>), Refusal> {
    checked_name(&name)?;
    let limit = service.config.limits.model_bytes;
    let upload = receive(&service, None, request, "the model", limit).await?;
    let stored = store(&service, &name, &upload).await;
    let (stored, new) = upload.end(stored)?;
    if new {
        admin.note(&service, "model published", "", stored.audited(&name));
    }
    Ok((status(new), Json(shown::<Models>(&service, SHARED, &name)?)))
}

async fn store(
    service: &Service,
    name: &str,
    upload: &Upload,
) -> Result<(Arc<Stored<ModelFacts>>, bool), Refusal> {
    let checked = Checked {
        tenant: SHARED,
        queued: service.config.queued,
    };
    let facts = checked.facts(service, upload).await?;
    let shared = service.library.models.of(SHARED);
    Ok(shared.put(name, upload.content(facts), |_| Ok(())).await?)
}

pub(super) async fn withdraw(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    if !service.library.models.of(SHARED).delete(&name).await? {
        return Err(none::<Models>(SHARED, &name));
    }
    admin.note(&service, "model withdrawn", "", name);
    Ok(StatusCode::NO_CONTENT)
}

fn shown<K: Kind>(service: &Service, owner: &str, name: &str) -> Result<UploadInfo, Refusal> {
    let names = K::shelf(service).of(owner).names();
    let named = names.into_iter().find(|named| named.name == name);
    named.map(info).ok_or_else(|| none::<K>(owner, name))
}

fn info<F>(named: Named<F>) -> UploadInfo {
    let version = |stored: &Arc<Stored<F>>| UploadVersion {
        sha256: stored.sha256.clone(),
        bytes: stored.bytes,
        uploaded_at: stored.uploaded_at,
    };
    UploadInfo {
        tenant: Some(named.owner).filter(|owner| owner != SHARED),
        name: named.name,
        disabled: named.disabled,
        versions: named.versions.iter().rev().map(version).collect(),
    }
}

fn none<K: Kind>(owner: &str, name: &str) -> Refusal {
    let word = K::WORD;
    let what = if owner == SHARED {
        format!("unknown shared {word} {name:?}")
    } else {
        format!("unknown {word} {name:?} of tenant {owner:?}")
    };
    Refusal::not_found(format!("{what}; list them with frostline admin {word} list"))
}
