//! `PUT` and `HEAD` of `/v1/guests/{name}` and `/v1/models/{name}`: received, checked, and only then visible; and how much of an
//! upload that broke off is here.

use super::Refusal;
use super::intake::{self, Upload};
use super::tenant_routes::{Version, checked_name, query, version};
use crate::caller::Caller;
use crate::state::{Facts, Found, ModelFacts, Owned, Stored};
use axum::Json;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use frostline_graph::{Model, ModelLimits};
use frostline_tensor::DType;
use frostline_wire::{CutInfo, GuestInfo, ModelInfo, UPLOAD_COMPLETE, UPLOAD_OFFSET};
use http::header::CACHE_CONTROL;
use http::{HeaderMap, StatusCode, Uri};
use std::sync::Arc;

/// 201 for a new version, 200 when these bytes are the newest already.
fn status(new: bool) -> StatusCode {
    if new { StatusCode::CREATED } else { StatusCode::OK }
}

pub(super) async fn put_guest(
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
    request: Request,
) -> Result<(StatusCode, Json<GuestInfo>), Refusal> {
    checked_name(&name)?;
    let wanted: Version = query(&uri)?;
    let upload = intake::upload(&caller, request, "the guest", caller.config.limits.guest_bytes).await?;
    let stored = store_guest(&caller, &name, &wanted, &upload).await;
    let (stored, new) = upload.end(stored)?;
    if new {
        caller.note(
            "guest uploaded",
            format!("{name}@sha256:{} of {} bytes", stored.sha256, stored.bytes),
        );
    }
    Ok((status(new), Json(stored.info(&name))))
}

async fn store_guest(
    caller: &Caller,
    name: &str,
    wanted: &Version,
    upload: &Upload,
) -> Result<(Arc<Stored<()>>, bool), Refusal> {
    check_hash(upload, wanted)?;
    let guest = caller
        .sandbox
        .for_tenant(&caller.tenant().name)
        .prepare(upload.bytes.clone())
        .await?;
    let _storing = caller.tenant().storing.lock().await;
    has_room(caller, &caller.guests(), name, upload)?;
    let stored = caller
        .guests()
        .put(name, &upload.sha256, upload.bytes.clone(), ())
        .await?;
    caller.prepared.insert(upload.sha256.clone(), guest);
    Ok(stored)
}

pub(super) async fn put_model(
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
    request: Request,
) -> Result<(StatusCode, Json<ModelInfo>), Refusal> {
    checked_name(&name)?;
    let wanted: Version = query(&uri)?;
    let upload = intake::upload(&caller, request, "the model", caller.config.limits.model_bytes).await?;
    let stored = store_model(&caller, &name, &wanted, &upload).await;
    let (stored, new) = upload.end(stored)?;
    if new {
        caller.note(
            "model uploaded",
            format!("{name}@sha256:{} of {} bytes", stored.sha256, stored.bytes),
        );
    }
    Ok((status(new), Json(stored.info(&name))))
}

async fn store_model(
    caller: &Caller,
    name: &str,
    wanted: &Version,
    upload: &Upload,
) -> Result<(Arc<Stored<ModelFacts>>, bool), Refusal> {
    check_hash(upload, wanted)?;
    let bytes = upload.bytes.clone();
    let limits = caller.config.limits.model;
    let facts = tokio::task::spawn_blocking(move || facts(bytes, &limits))
        .await
        .map_err(Refusal::host)??;
    let _storing = caller.tenant().storing.lock().await;
    has_room(caller, &caller.models(), name, upload)?;
    let models = caller.models();
    let stored = models.put(name, &upload.sha256, upload.bytes.clone(), facts);
    Ok(stored.await?)
}

/// Bytes that are there already take no room.
fn has_room<F: Facts>(
    caller: &Caller,
    shelf: &Owned<'_, F>,
    name: &str,
    upload: &Upload,
) -> Result<(), Refusal> {
    match shelf.find(name, None) {
        Found::Version(newest) if newest.sha256 == upload.sha256 => Ok(()),
        _ => caller.may_store(upload.bytes.len() as u64),
    }
}

fn check_hash(upload: &Upload, wanted: &Version) -> Result<(), Refusal> {
    match &wanted.sha256 {
        Some(wanted) if *wanted != upload.sha256 => Err(intake::unlike(&upload.sha256, wanted)),
        _ => Ok(()),
    }
}

pub(super) async fn guest_offset(
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    offset(&caller, &caller.guests(), "guest", &name, &uri, &headers).await
}

pub(super) async fn model_offset(
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    offset(&caller, &caller.models(), "model", &name, &uri, &headers).await
}

/// `HEAD` with a digest: how much of that upload is here. Without one it is `GET` without its body.
async fn offset<F: Facts>(
    caller: &Caller,
    shelf: &Owned<'_, F>,
    what: &str,
    name: &str,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    checked_name(name)?;
    let Some(sha256) = intake::digest(headers)? else {
        return version(shelf, what, name, uri).map(|_| StatusCode::OK.into_response());
    };
    let (offset, complete) = match shelf.find(name, None) {
        Found::Version(newest) if newest.sha256 == sha256 => (newest.bytes, "?1"),
        _ => (
            caller.partials.offset(&caller.tenant().name, &sha256).await?,
            "?0",
        ),
    };
    let headers = [
        (UPLOAD_OFFSET, offset.to_string()),
        (UPLOAD_COMPLETE, complete.to_owned()),
        (CACHE_CONTROL.as_str(), "no-store".to_owned()),
    ];
    Ok((StatusCode::NO_CONTENT, headers).into_response())
}

/// Checks and reads the network; only cuts in f32 can travel.
fn facts(bytes: Bytes, limits: &ModelLimits) -> Result<ModelFacts, Refusal> {
    let network = Model::admit(bytes, limits)?.network()?;
    let cuts = network
        .cuts
        .iter()
        .filter(|cut| cut.dtype == DType::F32)
        .map(|cut| CutInfo {
            name: cut.name.clone(),
            shape: cut.shape.dims().to_vec(),
            bytes_per_sample: cut.bytes_per_sample as u64,
            compute_share: cut.compute_share,
        });
    Ok(ModelFacts {
        input: network.input.name.clone(),
        input_shape: network.input.shape.dims().to_vec(),
        cuts: cuts.collect(),
    })
}
