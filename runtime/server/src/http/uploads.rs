//! Handlers of `PUT` and `HEAD` for `/v1/guests/{name}` and `/v1/models/{name}`. An upload becomes visible
//! only after all checks. `HEAD` returns the size of the received part of an interrupted upload.

use super::answer::{Answer, OBJECT};
use super::intake::{ReceivedUpload, digest, receive};
use super::references::{checked_name, sha256, version};
use crate::caller::Caller;
use crate::refusal::Refusal;
use crate::service::Service;
use axum::extract::{Path, Request};
use bytes::Bytes;
use frostline_batching::{Charge, Standing, Stop, run_blocking};
use frostline_graph::{Model, ModelLimits};
use frostline_profile::cut_tensors;
use frostline_sandbox::Spent;
use frostline_state::{ActivationMemory, Facts, FindResult, ModelFacts, StoredVersion, Unknown};
use frostline_tensor::DType;
use frostline_wire::{CutInfo, TensorInfo, UPLOAD_COMPLETE, UPLOAD_OFFSET};
use http::header::CACHE_CONTROL;
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use std::sync::Arc;
use std::time::Duration;

/// Deadline of a check. The largest models that are admitted need some seconds.
const CHECK_DEADLINE: Duration = Duration::from_secs(120);

/// Returns 201 for a new version, and 200 if these bytes already are the newest version.
pub(super) fn status(new: bool) -> StatusCode {
    if new { StatusCode::CREATED } else { StatusCode::OK }
}

/// Uploads a guest. Responds with 201 for a new version, and 200 if these bytes already are the newest
/// version.
pub(super) async fn put_guest(
    caller: Caller,
    Path(name): Path<String>,
    request: Request,
) -> Result<Answer, Refusal> {
    checked_name(&name)?;
    let limit = caller.config().limits.guest_bytes;
    let upload = receive(caller.service(), Some(&caller), request, "the guest", limit).await?;
    let stored = store_guest(&caller, &name, &upload).await;
    let (stored, new) = upload.finish(stored)?;
    if new {
        caller.audit("guest uploaded", stored.audited(&name));
    }
    let disabled = caller.guests().disabled(&name);
    let memory = caller.answer_memory(OBJECT).await?;
    Ok(Answer::json(&stored.info(&name, disabled), memory)?.with_status(status(new)))
}

async fn store_guest(
    caller: &Caller,
    name: &str,
    upload: &ReceivedUpload,
) -> Result<(Arc<StoredVersion<()>>, bool), Refusal> {
    let tenant = &caller.tenant().name;
    let library = caller.library();
    let allowance = caller.allowance();
    let guest = library.compile(tenant, upload.bytes.clone(), &allowance).await?;
    let _storing = caller.tenant().storing.lock().await;
    let stored = caller
        .guests()
        .put(name, upload.content(()), |bytes| caller.check_stored_bytes(bytes))
        .await?;
    library.cache_guest(tenant, guest);
    Ok(stored)
}

/// Uploads a model. Responds with 201 for a new version, and 200 if these bytes already are the newest
/// version.
pub(super) async fn put_model(
    caller: Caller,
    Path(name): Path<String>,
    request: Request,
) -> Result<Answer, Refusal> {
    checked_name(&name)?;
    let limit = caller.config().limits.model_bytes;
    let upload = receive(caller.service(), Some(&caller), request, "the model", limit).await?;
    let stored = store_model(&caller, &name, &upload).await;
    let (stored, new) = upload.finish(stored)?;
    if new {
        caller.audit("model uploaded", stored.audited(&name));
    }
    let memory = caller.answer_memory(model_bytes(&stored)).await?;
    Ok(Answer::json(&stored.info(&name, false), memory)?.with_status(status(new)))
}

/// Memory per byte of model metadata in an answer, for a copy of the metadata and the JSON text.
const MEMORY_PER_METADATA_BYTE: u64 = 3;

/// Returns the memory of an answer that describes a model.
pub(super) fn model_bytes(model: &StoredVersion<ModelFacts>) -> u64 {
    let bytes = model.facts.memory_bytes();
    OBJECT.saturating_add(bytes.saturating_mul(MEMORY_PER_METADATA_BYTE))
}

async fn store_model(
    caller: &Caller,
    name: &str,
    upload: &ReceivedUpload,
) -> Result<(Arc<StoredVersion<ModelFacts>>, bool), Refusal> {
    let tenant = caller.tenant();
    let check = ModelCheck {
        tenant: &tenant.name,
        allowed: tenant.quota.permits(),
    };
    let facts = check.facts(caller.service(), upload).await?;
    let _storing = tenant.storing.lock().await;
    let kept = facts.memory_bytes();
    Ok(caller
        .models()
        .put(name, upload.content(facts), |bytes| {
            caller
                .check_stored_bytes(bytes)
                .and_then(|()| caller.check_metadata(kept))
        })
        .await?)
}

/// Returns the upload offset of a guest for resuming an interrupted upload.
pub(super) async fn guest_offset(
    caller: Caller,
    Path(name): Path<String>,
    request: Parts,
) -> Result<Answer, Refusal> {
    offset(
        &caller,
        |sha256| caller.guests().find(&name, sha256),
        "guest",
        &name,
        &request,
    )
    .await
}

/// Returns the upload offset of a model for resuming an interrupted upload.
pub(super) async fn model_offset(
    caller: Caller,
    Path(name): Path<String>,
    request: Parts,
) -> Result<Answer, Refusal> {
    offset(
        &caller,
        |sha256| caller.find_model(&name, sha256).0,
        "model",
        &name,
        &request,
    )
    .await
}

/// Handles `HEAD`. With a digest, returns the received bytes of that upload. Without a digest, behaves like
/// `GET` without a body.
async fn offset<F: Facts>(
    caller: &Caller,
    find: impl Fn(Option<&str>) -> FindResult<F>,
    what: &str,
    name: &str,
    request: &Parts,
) -> Result<Answer, Refusal> {
    checked_name(name)?;
    let Some(digest) = digest(&request.headers)? else {
        let found = find(sha256(&request.uri)?.as_deref());
        return version(found, what, name).map(|_| Answer::empty(StatusCode::OK));
    };
    let (offset, complete) = match find(None) {
        FindResult::Version(newest) if newest.sha256 == digest => (newest.bytes, "?1"),
        _ => (
            caller
                .library()
                .partials
                .offset(&caller.tenant().name, &digest)
                .await?,
            "?0",
        ),
    };
    Ok(Answer::empty(StatusCode::NO_CONTENT)
        .with_header(HeaderName::from_static(UPLOAD_OFFSET), HeaderValue::from(offset))
        .with_header(
            HeaderName::from_static(UPLOAD_COMPLETE),
            HeaderValue::from_static(complete),
        )
        .with_header(CACHE_CONTROL, HeaderValue::from_static("no-store")))
}

/// Terms for checking an uploaded model: the tenant, and the number of uploads that the tenant may have in the
/// queue.
pub(super) struct ModelCheck<'a> {
    pub(super) tenant: &'a str,
    pub(super) allowed: Standing,
}

impl ModelCheck<'_> {
    /// Checks an uploaded model and returns the metadata. Tenants alternate, and CPU time is accounted to the
    /// tenant. If the client disconnects, the upload leaves the queue, or the check ends after the current
    /// step. The reservations are held until the check has ended.
    pub(super) async fn facts(
        self,
        service: &Service,
        upload: &ReceivedUpload,
    ) -> Result<ModelFacts, Refusal> {
        let checks = &service.scheduling.model_checks;
        let permit = service
            .scheduling
            .enter(checks, self.tenant, self.allowed)
            .await?;
        let bytes = upload.bytes.clone();
        let limits = service.config.limits.model;
        let on_spent = service.operations.metrics.on_spent(self.tenant);
        let charge = Charge::new(move |spent| on_spent(Spent::Compiling(spent)));
        run_blocking((permit, upload.reserved()), CHECK_DEADLINE, charge, move |stop| {
            facts(bytes, &limits, stop)
        })
        .await?
    }
}

/// Returns the inputs that were joined into the only input of the model, as guests see them.
fn joined_inputs(model: &Model) -> Vec<TensorInfo> {
    let inputs = model.joint_inputs().unwrap_or_default().into_iter();
    inputs
        .map(|input| TensorInfo {
            dtype: input.dtype(),
            shape: input.shape.dims().to_vec(),
            name: input.name,
        })
        .collect()
}

/// Validates the model and extracts its metadata. Only cuts with `f32` tensors can be sent, so others are left
/// out.
fn facts(bytes: Bytes, limits: &ModelLimits, stop: &Stop) -> Result<ModelFacts, Refusal> {
    let model = Model::admit(bytes, limits)?;
    stop.check()?;
    let network = model.network()?;
    network.check_cuts(limits)?;
    stop.check()?;
    let alive = model.footprint()?.alive;
    let cuts = network
        .cuts
        .iter()
        .filter(|cut| cut.dtype == DType::F32)
        .map(|cut| CutInfo {
            name: cut.name.clone(),
            shape: cut.shape.dims().to_vec(),
            bytes_per_sample: cut.bytes_per_sample as u64,
            compute_share: cut.compute_share,
            tensors: cut_tensors(cut),
        });
    Ok(ModelFacts {
        input: network.input.name.clone(),
        input_shape: network.input.shape.dims().to_vec(),
        joined_inputs: joined_inputs(&model),
        cuts: cuts.collect(),
        alive: ActivationMemory {
            fixed: alive.fixed,
            per_row: alive.per_sample,
            unknown: Unknown::new(),
        },
        unknown: Unknown::new(),
    })
}
