//! Handlers for uploaded guests and models, and for models that an admin shares with all tenants.

use super::identity::Admin;
use super::tenants::unknown_tenant;
use crate::http::answer::{Answer, OBJECT, PAGE, answer_memory};
use crate::http::intake::{ReceivedUpload, receive};
use crate::http::queries::TenantQuery;
use crate::http::receive::json;
use crate::http::references::{checked_name, query};
use crate::http::uploads::{ModelCheck, status};
use crate::refusal::Refusal;
use crate::service::Service;
use axum::extract::{Path, Request, State};
use frostline_batching::Standing;
use frostline_state::{Facts, ModelFacts, NamedUpload, SHARED, StoredVersion, UploadStore};
use frostline_wire::{GuestChange, UploadInfo, UploadVersion};
use http::{StatusCode, Uri};
use std::sync::Arc;

/// Guests or models. Most handlers work for both.
pub(in crate::http) trait UploadKind {
    /// Metadata of an uploaded version.
    type Facts: Facts;
    /// Word for messages.
    const WORD: &'static str;
    /// Returns the store of this kind.
    fn shelf(service: &Service) -> &UploadStore<Self::Facts>;
}

pub(in crate::http) struct Guests;

impl UploadKind for Guests {
    type Facts = ();
    const WORD: &'static str = "guest";

    fn shelf(service: &Service) -> &UploadStore<()> {
        &service.library.guests
    }
}

pub(in crate::http) struct Models;

impl UploadKind for Models {
    type Facts = ModelFacts;
    const WORD: &'static str = "model";

    fn shelf(service: &Service) -> &UploadStore<ModelFacts> {
        &service.library.models
    }
}

/// Lists guests or models. Shared ones come first. `?tenant=` selects a tenant.
pub(in crate::http) async fn list<K: UploadKind>(
    State(service): State<Arc<Service>>,
    uri: Uri,
) -> Result<Answer, Refusal> {
    let wanted: TenantQuery = query(&uri)?;
    let named = match &wanted.tenant {
        Some(tenant) => {
            service
                .tenants
                .quota(tenant)
                .ok_or_else(|| unknown_tenant(tenant))?;
            K::shelf(&service).owned_by(tenant).names()
        }
        None => K::shelf(&service).all_names(),
    };
    let mut infos: Vec<UploadInfo> = named.into_iter().map(info).collect();
    infos.sort_by(|one, other| (&one.tenant, &one.name).cmp(&(&other.tenant, &other.name)));
    Ok(Answer::list(infos, answer_memory(&service, "", PAGE).await?))
}

/// Shows a guest and all versions.
pub(in crate::http) async fn show_guest(
    State(service): State<Arc<Service>>,
    Path((tenant, name)): Path<(String, String)>,
) -> Result<Answer, Refusal> {
    let memory = answer_memory(&service, "", OBJECT).await?;
    Answer::json(&find_upload::<Guests>(&service, &tenant, &name)?, memory)
}

/// Disables or enables a guest.
pub(in crate::http) async fn change_guest(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path((tenant, name)): Path<(String, String)>,
    request: Request,
) -> Result<Answer, Refusal> {
    let (GuestChange { disabled }, memory) = json(request, &service, None).await?;
    if !service
        .library
        .guests
        .owned_by(&tenant)
        .disable(&name, disabled)
        .await?
    {
        return Err(upload_not_found::<Guests>(&tenant, &name));
    }
    let what = if disabled {
        "guest disabled"
    } else {
        "guest enabled"
    };
    admin.audit(&service, what, &tenant, name.clone()).await;
    Answer::json(&find_upload::<Guests>(&service, &tenant, &name)?, memory)
}

/// Removes a guest or model of a tenant, including all versions.
pub(in crate::http) async fn remove<K: UploadKind>(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path((tenant, name)): Path<(String, String)>,
) -> Result<Answer, Refusal> {
    // Shared models have a separate route.
    if tenant == SHARED || !K::shelf(&service).owned_by(&tenant).delete(&name).await? {
        return Err(upload_not_found::<K>(&tenant, &name));
    }
    admin
        .audit(&service, &format!("{} removed", K::WORD), &tenant, name)
        .await;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

/// Uploads a model that is shared with all tenants. The checks are the same as for a tenant's model, but no
/// storage quota applies.
pub(in crate::http) async fn publish(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
    request: Request,
) -> Result<Answer, Refusal> {
    checked_name(&name)?;
    let limit = service.config.limits.model_bytes;
    let upload = receive(&service, None, request, "the model", limit).await?;
    let stored = store(&service, &name, &upload).await;
    let (stored, new) = upload.finish(stored)?;
    if new {
        admin
            .audit(&service, "model published", "", stored.audited(&name))
            .await;
    }
    let memory = answer_memory(&service, "", OBJECT).await?;
    let model = find_upload::<Models>(&service, SHARED, &name)?;
    Ok(Answer::json(&model, memory)?.with_status(status(new)))
}

async fn store(
    service: &Service,
    name: &str,
    upload: &ReceivedUpload,
) -> Result<(Arc<StoredVersion<ModelFacts>>, bool), Refusal> {
    let check = ModelCheck {
        tenant: SHARED,
        allowed: Standing {
            running: 1,
            queued: service.config.queued,
        },
    };
    let facts = check.facts(service, upload).await?;
    let shared = service.library.models.owned_by(SHARED);
    Ok(shared.put(name, upload.content(facts), |_| Ok(())).await?)
}

/// Stops sharing a model with all tenants, and deletes it.
pub(in crate::http) async fn withdraw(
    State(service): State<Arc<Service>>,
    admin: Admin,
    Path(name): Path<String>,
) -> Result<Answer, Refusal> {
    if !service.library.models.owned_by(SHARED).delete(&name).await? {
        return Err(upload_not_found::<Models>(SHARED, &name));
    }
    admin.audit(&service, "model withdrawn", "", name).await;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

fn find_upload<K: UploadKind>(service: &Service, owner: &str, name: &str) -> Result<UploadInfo, Refusal> {
    let names = K::shelf(service).owned_by(owner).names();
    let named = names.into_iter().find(|named| named.name == name);
    named.map(info).ok_or_else(|| upload_not_found::<K>(owner, name))
}

fn info<F>(named: NamedUpload<F>) -> UploadInfo {
    UploadInfo {
        tenant: Some(named.owner).filter(|owner| owner != SHARED),
        name: named.name,
        disabled: named.disabled,
        versions: named
            .versions
            .iter()
            .rev()
            .map(|stored| UploadVersion {
                sha256: stored.sha256.clone(),
                bytes: stored.bytes,
                uploaded_at: stored.uploaded_at,
            })
            .collect(),
    }
}

fn upload_not_found<K: UploadKind>(owner: &str, name: &str) -> Refusal {
    let word = K::WORD;
    let what = if owner == SHARED {
        format!("unknown shared {word} {name:?}")
    } else {
        format!("unknown {word} {name:?} of tenant {owner:?}")
    };
    Refusal::not_found(format!("{what}; list them with frostline admin {word} list"))
}
