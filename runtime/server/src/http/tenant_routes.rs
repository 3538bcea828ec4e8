//! Short handlers under `/v1` that show, list, delete and describe.

use super::answer::{Answer, OBJECT, PAGE as ANSWER_PAGE};
use super::queries::{ListingQuery, LogQuery, PageQuery};
use super::receive::json;
use super::references::{Reference, query, version};
use super::uploads::model_bytes;
use crate::caller::Caller;
use crate::extraction::DEFAULT_GRANT;
use crate::guest_logs::{ANSWER, since_1970};
use crate::refusal::Refusal;
use axum::extract::{Path, Request};
use frostline_batching::{Kind, Standing};
use frostline_state::{FindResult, NamedUpload, StateError};
use frostline_tensor::Stage;
use frostline_wire::{DescriptionRequest, GuestLog, Load, MemoryLoad, QuotaKey, StageLoad};
use http::{StatusCode, Uri};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Default page size of object listings. Object stores use the same page size.
const PAGE: usize = 1000;

/// Memory per listed object in bytes, for the key, the etag and the JSON text.
const MEMORY_PER_OBJECT: u64 = 1024;

impl PageQuery {
    /// Sorts by name and returns the entries for this page.
    fn select<F>(&self, named: Vec<NamedUpload<F>>) -> Vec<NamedUpload<F>> {
        let mut named: Vec<NamedUpload<F>> = named
            .into_iter()
            .filter(|named| self.after.as_ref().is_none_or(|after| named.name > *after))
            .collect();
        named.sort_by(|left, right| left.name.cmp(&right.name));
        named.truncate(self.limit.unwrap_or(usize::MAX));
        named
    }
}

/// Lists the newest versions of all guests, sorted by name. `?limit=` and `?after=` select a page.
pub(super) async fn list_guests(caller: Caller, uri: Uri) -> Result<Answer, Refusal> {
    let guests = query::<PageQuery>(&uri)?.select(caller.guests().names());
    let bytes = (guests.len() as u64).saturating_mul(MEMORY_PER_OBJECT);
    let memory = caller.answer_memory(ANSWER_PAGE + bytes).await?;
    Ok(Answer::list(
        guests.into_iter().filter_map(|named| {
            let newest = named.versions.last()?;
            Some(newest.info(&named.name, named.disabled))
        }),
        memory,
    ))
}

/// Lists models sorted by name. `?sha256=` selects models with that version, and `?limit=` and `?after=`
/// select a page.
///
/// A model of the tenant hides a shared model with the same name.
pub(super) async fn list_models(caller: Caller, uri: Uri) -> Result<Answer, Refusal> {
    let wanted: PageQuery = query(&uri)?;
    let own = caller.models().names().into_iter().map(|named| (named, false));
    let shared = caller.shared_models().names().into_iter();
    let shared = shared.map(|named| (named, true));
    let models = shared.chain(own).filter_map(|(named, shared)| {
        let version = match &wanted.sha256 {
            Some(wanted) => named.versions.iter().rfind(|version| version.sha256 == *wanted),
            None => named.versions.last(),
        };
        let version = Arc::clone(version?);
        let behind = wanted.after.as_ref().is_none_or(|after| named.name > *after);
        behind.then_some((named.name, (version, shared)))
    });
    let models: BTreeMap<_, _> = models.collect();
    let models = models.into_iter().take(wanted.limit.unwrap_or(usize::MAX));
    let models: Vec<_> = models.collect();
    // Only the metadata of the current model is copied.
    let largest = models.iter().map(|(_, (version, _))| model_bytes(version)).max();
    let bytes = (models.len() as u64).saturating_mul(MEMORY_PER_OBJECT);
    let bytes = bytes.saturating_add(largest.unwrap_or(0));
    let memory = caller.answer_memory(ANSWER_PAGE + bytes).await?;
    Ok(Answer::list(
        models
            .into_iter()
            .map(|(name, (version, shared))| version.info(&name, shared)),
        memory,
    ))
}

/// Shows the newest version of a guest. `NAME@sha256:HEX` selects another version.
pub(super) async fn show_guest(
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Answer, Refusal> {
    let wanted = Reference::parse(&name, &uri)?;
    let found = caller.guests().find(wanted.name, wanted.sha256.as_deref());
    let disabled = caller.guests().disabled(wanted.name);
    let guest = version(found, "guest", wanted.name)?.info(wanted.name, disabled);
    Answer::json(&guest, caller.answer_memory(OBJECT).await?)
}

/// Returns log lines of the guest from the last hour. `?after=` selects the lines after the previous page.
pub(super) async fn guest_log(caller: Caller, Path(name): Path<String>, uri: Uri) -> Result<Answer, Refusal> {
    let LogQuery { after } = query(&uri)?;
    let memory = caller.answer_memory(ANSWER).await?;
    let lines = &caller.service().operations.lines;
    if let Some(log) = lines.read(caller.owner(), &name, after, since_1970()) {
        return Answer::json(&log, memory);
    }
    // A guest without log lines is not an error.
    version(caller.guests().find(&name, None), "guest", &name)?;
    let nothing = GuestLog {
        next: after,
        ..GuestLog::default()
    };
    Answer::json(&nothing, memory)
}

/// Shows the newest version of a model with the available cuts. `NAME@sha256:HEX` selects another version.
pub(super) async fn show_model(
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Answer, Refusal> {
    let wanted = Reference::parse(&name, &uri)?;
    let (found, shared) = caller.find_model(wanted.name, wanted.sha256.as_deref());
    let model = version(found, "model", wanted.name)?;
    let memory = caller.answer_memory(model_bytes(&model)).await?;
    Answer::json(&model.info(wanted.name, shared), memory)
}

/// Deletes a guest and all versions.
pub(super) async fn delete_guest(caller: Caller, Path(name): Path<String>) -> Result<Answer, Refusal> {
    let deleted = match caller.guests().delete_as_owner(&name).await {
        Err(StateError::Disabled { .. }) => return Err(caller.guest_disabled(&name)),
        deleted => deleted?,
    };
    deletion_response(&caller, deleted, "guest", &name)
}

/// Deletes a model and all versions.
pub(super) async fn delete_model(caller: Caller, Path(name): Path<String>) -> Result<Answer, Refusal> {
    let deleted = caller.models().delete_as_owner(&name).await?;
    if !deleted && let FindResult::Version(_) = caller.shared_models().find(&name, None) {
        return Err(Refusal::not_found(format!(
            "{name:?} is a shared model; only the operator can remove it"
        )));
    }
    deletion_response(&caller, deleted, "model", &name)
}

/// Lists objects below a data root or subfolder.
pub(super) async fn list_objects(caller: Caller, uri: Uri) -> Result<Answer, Refusal> {
    let listing: ListingQuery = query(&uri)?;
    let most = caller.config().limits.page;
    let limit = listing.limit.unwrap_or(PAGE);
    if limit == 0 || limit > most {
        return Err(Refusal::request(format!(
            "invalid limit {limit}: expected 1 to {most}"
        )));
    }
    caller.check_budget(QuotaKey::ReadBytesPerDay)?;
    let store = caller.store(&listing.root, Kind::Read)?;
    let memory = (limit as u64).saturating_mul(MEMORY_PER_OBJECT);
    let memory = caller.answer_memory(memory).await?;
    let _turn = caller.listing_permit().await?;
    let page = tokio::select! {
        page = store.list_as(listing.layout, listing.after.as_deref(), limit) => page?,
        // A listing can read shards of any size through.
        refusal = caller.wait_until_refused(|| caller.check_budget(QuotaKey::ReadBytesPerDay)) => return Err(refusal),
    };
    caller.metrics().tenants.count_listing(&caller.tenant().name);
    Answer::json(&page, memory)
}

/// Asks a guest which pixels it needs and which cuts of a model it serves.
pub(super) async fn describe(caller: Caller, request: Request) -> Result<Answer, Refusal> {
    let (request, memory) = json::<DescriptionRequest>(request, caller.service(), Some(&caller)).await?;
    let model = caller.model(&request.model)?;
    caller.find_guest(&request.guest)?;
    let describe = async {
        let allowance = caller.allowance();
        // Compiling waits for the tenant's memory, so it is done without the permit.
        let guest = caller.guest(&request.guest, &allowance).await?;
        let _permit = caller.description_permit().await?;
        caller
            .describe(&guest, &model, &request.parameters, &allowance)
            .await
    };
    let description = caller.with_timeout(describe).await?;
    Answer::json(&*description, memory)
}

/// Shows the load of the host and the tenant's share.
pub(super) async fn load(caller: Caller) -> Result<Answer, Refusal> {
    let answer_memory = caller.answer_memory(OBJECT).await?;
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
    let load = Load {
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
        token_seconds: caller.token_seconds(),
    };
    Answer::json(&load, answer_memory)
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
    let own = caller.tenant();
    let tenants = &caller.service().tenants;
    let others = caller.scheduling().extractions.counts_by_tenant().into_keys();
    let others = others.filter(|name| *name != own.name);
    let weights = others.filter_map(|name| Some(tenants.quota(&name)?.weight()));
    let own = f64::from(own.quota.weight());
    own / (own + weights.map(f64::from).sum::<f64>())
}

fn deletion_response(caller: &Caller, was_there: bool, what: &str, name: &str) -> Result<Answer, Refusal> {
    if was_there {
        caller.library().deleted.notify_one();
        caller.audit(&format!("{what} removed"), name);
        Ok(Answer::empty(StatusCode::NO_CONTENT))
    } else {
        Err(Refusal::not_found(format!("unknown {what} {name:?}")))
    }
}
