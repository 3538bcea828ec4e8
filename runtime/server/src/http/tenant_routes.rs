//! Short handlers under `/v1` that show, list, delete and describe.

use super::receive::json;
use super::references::{Reference, query, version};
use crate::caller::Caller;
use crate::extraction::DEFAULT_GRANT;
use crate::guest_logs::{ANSWER, since_1970};
use crate::refusal::Refusal;
use crate::scheduling::with_reservation;
use crate::state::{FindResult, ModelFacts, NamedUpload, StateError, StoredVersion};
use axum::Json;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use frostline_batching::{Kind, Reserved, Standing};
use frostline_tensor::Stage;
use frostline_wire::{
    Description, DescriptionRequest, GuestInfo, GuestLog, Layout, Load, MemoryLoad, ModelInfo, StageLoad,
};
use http::header::CONTENT_TYPE;
use http::{StatusCode, Uri};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Query of an object listing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListingQuery {
    root: String,
    after: Option<String>,
    #[serde(default)]
    layout: Layout,
    limit: Option<usize>,
}

/// Default page size of object listings. Object stores use the same page size.
const PAGE: usize = 1000;

/// Memory per listed object in bytes, for the key, the etag and the JSON text.
const MEMORY_PER_OBJECT: u64 = 1024;

/// Memory per byte of model metadata in a list. It covers a copy of the metadata, and the JSON text in a
/// buffer that doubles.
const MEMORY_PER_METADATA_BYTE: u64 = 5;

/// Maximum time that a listing waits for memory.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);

/// Query of a list of guests or models. `sha256` selects models and has no effect on guests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    sha256: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

impl PageQuery {
    /// Sorts by name and returns the entries for this page.
    fn select<F>(&self, named: Vec<NamedUpload<F>>) -> Vec<NamedUpload<F>> {
        let behind = |named: &NamedUpload<F>| self.after.as_ref().is_none_or(|after| named.name > *after);
        let mut named: Vec<NamedUpload<F>> = named.into_iter().filter(behind).collect();
        named.sort_by(|left, right| left.name.cmp(&right.name));
        named.truncate(self.limit.unwrap_or(usize::MAX));
        named
    }
}

/// Lists the newest versions of all guests, sorted by name. `?limit=` and `?after=` select a page.
pub(super) async fn list_guests(caller: Caller, uri: Uri) -> Result<Response, Refusal> {
    let guests = query::<PageQuery>(&uri)?.select(caller.guests().names());
    let memory = (guests.len() as u64).saturating_mul(MEMORY_PER_OBJECT);
    let memory = caller
        .memory(Kind::Request)
        .reserve(memory, MEMORY_TIMEOUT)
        .await?;
    let info = |named: NamedUpload<()>| {
        let newest = named.versions.last()?;
        Some(newest.info(&named.name, named.disabled))
    };
    let guests: Vec<GuestInfo> = guests.into_iter().filter_map(info).collect();
    json_response(&guests, memory)
}

/// Lists models sorted by name. `?sha256=` selects models with that version, and `?limit=` and `?after=`
/// select a page.
///
/// A model of the tenant hides a shared model with the same name.
pub(super) async fn list_models(caller: Caller, uri: Uri) -> Result<Response, Refusal> {
    let wanted: PageQuery = query(&uri)?;
    let own = caller.models().names().into_iter().map(|named| (named, false));
    let shared = caller.shared_models().names().into_iter();
    let shared = shared.map(|named| (named, true));
    let version = |(named, shared): (NamedUpload<ModelFacts>, bool)| {
        let version = match &wanted.sha256 {
            Some(wanted) => named.versions.iter().rfind(|version| version.sha256 == *wanted),
            None => named.versions.last(),
        };
        let version = Arc::clone(version?);
        let behind = wanted.after.as_ref().is_none_or(|after| named.name > *after);
        behind.then_some((named.name, (version, shared)))
    };
    let models: BTreeMap<_, _> = shared.chain(own).filter_map(version).collect();
    let models = models.into_iter().take(wanted.limit.unwrap_or(usize::MAX));
    let models: Vec<_> = models.collect();
    let bytes = models
        .iter()
        .map(|(_, (version, _))| MEMORY_PER_METADATA_BYTE * version.facts.memory_bytes() + MEMORY_PER_OBJECT);
    let memory = caller
        .memory(Kind::Request)
        .reserve(bytes.sum(), MEMORY_TIMEOUT)
        .await?;
    let info = |(name, (version, shared)): &(String, (Arc<StoredVersion<ModelFacts>>, bool))| {
        version.info(name, *shared)
    };
    json_response(&models.iter().map(info).collect::<Vec<ModelInfo>>(), memory)
}

/// Shows the newest version of a guest. `NAME@sha256:HEX` selects another version.
pub(super) async fn show_guest(
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Json<GuestInfo>, Refusal> {
    let wanted = Reference::parse(&name, &uri)?;
    let found = caller.guests().find(wanted.name, wanted.sha256.as_deref());
    let disabled = caller.guests().disabled(wanted.name);
    Ok(Json(
        version(found, "guest", wanted.name)?.info(wanted.name, disabled),
    ))
}

/// Query parameter `?after=`, which is `next` of the previous page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogQuery {
    #[serde(default)]
    after: u64,
}

/// Returns log lines of the guest from the last hour. `?after=` selects the lines after the previous page.
pub(super) async fn guest_log(
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let LogQuery { after } = query(&uri)?;
    let memory = caller
        .memory(Kind::Request)
        .reserve(ANSWER, MEMORY_TIMEOUT)
        .await?;
    let lines = &caller.service().operations.lines;
    if let Some(log) = lines.read(caller.owner(), &name, after, since_1970()) {
        return json_response(&log, memory);
    }
    // A guest without log lines is not an error.
    version(caller.guests().find(&name, None), "guest", &name)?;
    let nothing = GuestLog {
        next: after,
        ..GuestLog::default()
    };
    json_response(&nothing, memory)
}

/// Creates a JSON response. The memory is reserved until the response has been sent.
fn json_response(value: &impl Serialize, memory: Reserved) -> Result<Response, Refusal> {
    let json = serde_json::to_vec(value).map_err(Refusal::host)?;
    Ok(with_memory(json, memory))
}

fn with_memory(json: Vec<u8>, memory: Reserved) -> Response {
    let body = with_reservation(json.into(), &Arc::new(memory));
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Shows the newest version of a model with the available cuts. `NAME@sha256:HEX` selects another version.
pub(super) async fn show_model(
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Json<ModelInfo>, Refusal> {
    let wanted = Reference::parse(&name, &uri)?;
    let (found, shared) = caller.find_model(wanted.name, wanted.sha256.as_deref());
    Ok(Json(
        version(found, "model", wanted.name)?.info(wanted.name, shared),
    ))
}

/// Deletes a guest and all versions.
pub(super) async fn delete_guest(caller: Caller, Path(name): Path<String>) -> Result<StatusCode, Refusal> {
    let deleted = match caller.guests().delete_as_owner(&name).await {
        Err(StateError::Disabled { .. }) => return Err(caller.guest_disabled(&name)),
        deleted => deleted?,
    };
    deletion_response(&caller, deleted, "guest", &name)
}

/// Deletes a model and all versions.
pub(super) async fn delete_model(caller: Caller, Path(name): Path<String>) -> Result<StatusCode, Refusal> {
    let deleted = caller.models().delete_as_owner(&name).await?;
    if !deleted && let FindResult::Version(_) = caller.shared_models().find(&name, None) {
        return Err(Refusal::not_found(format!(
            "{name:?} is a shared model; only the operator can remove it"
        )));
    }
    deletion_response(&caller, deleted, "model", &name)
}

/// Lists objects below a data root or subfolder.
pub(super) async fn list_objects(caller: Caller, uri: Uri) -> Result<Response, Refusal> {
    let listing: ListingQuery = query(&uri)?;
    let most = caller.config().limits.page;
    let limit = listing.limit.unwrap_or(PAGE);
    if limit == 0 || limit > most {
        return Err(Refusal::request(format!(
            "invalid limit {limit}: expected 1 to {most}"
        )));
    }
    let store = caller.store(&listing.root, Kind::Read)?;
    let _turn = caller.listing_permit().await?;
    let memory = (limit as u64).saturating_mul(MEMORY_PER_OBJECT);
    let memory = caller
        .memory(Kind::Request)
        .reserve(memory, MEMORY_TIMEOUT)
        .await?;
    let page = store.list_as(listing.layout, listing.after.as_deref(), limit);
    let json = serde_json::to_vec(&page.await?).map_err(Refusal::host)?;
    let (counters, tenant) = (&caller.metrics().tenants, &caller.tenant().name);
    counters.count_listing(tenant);
    counters.sent_bytes_of(tenant).inc_by(json.len() as u64);
    Ok(with_memory(json, memory))
}

/// Asks a guest which pixels it needs and which cuts of a model it serves.
pub(super) async fn describe(caller: Caller, request: Request) -> Result<Json<Description>, Refusal> {
    let (request, _memory) = json::<DescriptionRequest>(request, caller.service(), Some(&caller)).await?;
    let model = caller.model(&request.model)?;
    caller.find_guest(&request.guest)?;
    let describe = async {
        let _permit = caller.description_permit().await?;
        let allowance = caller.allowance();
        let guest = caller.guest(&request.guest, &allowance).await?;
        caller
            .describe(&guest, &model, &request.parameters, &allowance)
            .await
    };
    let description = caller.with_timeout(describe).await?;
    Ok(Json(Description::clone(&description)))
}

/// Shows the load of the host and the tenant's share.
pub(super) async fn load(caller: Caller) -> Json<Load> {
    let Standing { running, queued } = caller.scheduling().extractions.counts();
    let memory = caller.scheduling().memory.read(|ledger| MemoryLoad {
        budget: ledger.budget().bytes,
        held: ledger.held_in_all(),
    });
    let lanes = &caller.machine().lanes;
    let waited = lanes.stats().waited.into_iter();
    let waited = waited
        .filter(|(name, _)| *name == caller.tenant().name)
        .map(|(_, longest)| longest.as_secs_f64());
    Json(Load {
        name: Some(caller.config().name.clone()),
        queued: queued as u64,
        running: running as u64,
        lanes: lanes.lanes() as u64,
        samples_per_second: caller.metrics().meter.per_second(),
        share: Some(share(&caller)),
        waited_seconds: waited.max_by(f64::total_cmp),
        grant: Some(caller.config().grant.min(DEFAULT_GRANT) as u64),
        exact_int8: frostline_engine::exact_int8(),
        stages: stages(&caller),
        memory: Some(memory),
        device_memory: caller.machine().device_memory(),
    })
}

/// Returns the rates of the caller's own rows, for stages of the caller's models and shared models.
fn stages(caller: &Caller) -> Vec<StageLoad> {
    let listed = [caller.models().list(), caller.shared_models().list()];
    let usable: HashSet<String> = listed
        .into_iter()
        .flatten()
        .map(|(_, version)| version.sha256.clone())
        .collect();
    let mut known = caller.machine().lanes.rates_of(&caller.tenant().name);
    // If a network has several variants, the one that the stock guest uses comes first.
    known.sort_by_key(|(stage, _)| (!stage.precision.is_full(), stage.pixels.is_none()));
    let loads = known
        .into_iter()
        .map(|(Stage { model, from, to, .. }, rate)| StageLoad {
            efficient_batch: rate.efficient_batch as u64,
            seconds_per_row: rate.seconds_per_row,
            model,
            from,
            to,
        });
    loads.filter(|stage| usable.contains(&stage.model)).collect()
}

/// Returns the caller's part of device time next to all tenants with an extraction.
fn share(caller: &Caller) -> f64 {
    let (own, tenants) = (caller.tenant(), &caller.service().tenants);
    let others = caller.scheduling().extractions.counts_by_tenant().into_keys();
    let others = others.filter(|name| *name != own.name);
    let weights = others.filter_map(|name| Some(tenants.quota(&name)?.weight()));
    let own = f64::from(own.quota.weight());
    own / (own + weights.map(f64::from).sum::<f64>())
}

fn deletion_response(
    caller: &Caller,
    was_there: bool,
    what: &str,
    name: &str,
) -> Result<StatusCode, Refusal> {
    if was_there {
        caller.audit(&format!("{what} removed"), name);
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Refusal::not_found(format!("unknown {what} {name:?}")))
    }
}
