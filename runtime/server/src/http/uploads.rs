//! `PUT /v1/guests/{name}` and `PUT /v1/models/{name}`: received, checked, and only then visible.

use super::Refusal;
use super::receive::{self, Upload};
use super::tenant_routes::{Version, checked_name, query};
use crate::service::Service;
use crate::state::ModelFacts;
use axum::Json;
use axum::extract::{Path, Request, State};
use bytes::Bytes;
use frostline_graph::Model;
use frostline_tensor::DType;
use frostline_wire::{CutInfo, GuestInfo, ModelInfo};
use http::{StatusCode, Uri};
use std::sync::Arc;

/// 201 for a new version, 200 when these bytes are the newest already.
fn status(new: bool) -> StatusCode {
    if new { StatusCode::CREATED } else { StatusCode::OK }
}

pub(super) async fn put_guest(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    uri: Uri,
    request: Request,
) -> Result<(StatusCode, Json<GuestInfo>), Refusal> {
    checked_name(&name)?;
    let wanted: Version = query(&uri)?;
    let upload = receive::upload(&service, request, "the guest", service.config.limits.guest_bytes).await?;
    check_hash(&upload, &wanted)?;
    let guest = service.sandbox.prepare(upload.bytes.clone()).await?;
    let (stored, new) = service
        .guests
        .put(&name, &upload.sha256, upload.bytes, ())
        .await?;
    service.prepared.insert(upload.sha256, guest);
    tracing::info!(
        name,
        sha256 = stored.sha256,
        bytes = stored.bytes,
        new,
        "guest uploaded"
    );
    Ok((status(new), Json(stored.info(&name))))
}

pub(super) async fn put_model(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    uri: Uri,
    request: Request,
) -> Result<(StatusCode, Json<ModelInfo>), Refusal> {
    checked_name(&name)?;
    let wanted: Version = query(&uri)?;
    let upload = receive::upload(&service, request, "the model", service.config.limits.model_bytes).await?;
    check_hash(&upload, &wanted)?;
    let bytes = upload.bytes.clone();
    let facts = tokio::task::spawn_blocking(move || facts(bytes))
        .await
        .map_err(Refusal::host)??;
    let (stored, new) = service
        .models
        .put(&name, &upload.sha256, upload.bytes, facts)
        .await?;
    tracing::info!(
        name,
        sha256 = stored.sha256,
        bytes = stored.bytes,
        new,
        "model uploaded"
    );
    Ok((status(new), Json(stored.info(&name))))
}

fn check_hash(upload: &Upload, wanted: &Version) -> Result<(), Refusal> {
    match &wanted.sha256 {
        Some(wanted) if *wanted != upload.sha256 => Err(Refusal::request(format!(
            "the bytes received have the SHA-256 {}, not {wanted}; nothing was stored",
            upload.sha256
        ))),
        _ => Ok(()),
    }
}

/// Reads the network; only cuts in f32 can travel.
fn facts(bytes: Bytes) -> Result<ModelFacts, Refusal> {
    let network = Model::from_bytes(bytes)?.network()?;
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
