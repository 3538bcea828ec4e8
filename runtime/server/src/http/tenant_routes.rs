//! The short handlers under `/v1`: show, list, delete, describe.

use super::receive::json;
use crate::caller::Caller;
use crate::refusal::Refusal;
use crate::state::{Facts, Found, ModelFacts, Named, Owned, StateError, Stored};
use axum::Json;
use axum::extract::{Path, Query, Request};
use frostline_batching::Standing;
use frostline_wire::{Description, DescriptionRequest, GuestInfo, Layout, Load, ModelInfo, ObjectPage};
use http::{StatusCode, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `?sha256=`: this version, or none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Version {
    pub(super) sha256: Option<String>,
}

/// `?root=&after=&layout=&limit=`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    root: String,
    after: Option<String>,
    #[serde(default)]
    layout: Layout,
    limit: Option<usize>,
}

/// Objects of a page unless the request says otherwise: what object stores answer at a time.
const PAGE: usize = 1000;

pub(super) async fn list_guests(caller: Caller) -> Json<Vec<GuestInfo>> {
    let info = |named: Named<()>| {
        let newest = named.versions.last()?;
        Some(newest.info(&named.name, named.disabled))
    };
    Json(caller.guests().names().into_iter().filter_map(info).collect())
}

/// By name, `?sha256=` those with that version; a shared model hides behind one of the tenant's own.
pub(super) async fn list_models(caller: Caller, uri: Uri) -> Result<Json<Vec<ModelInfo>>, Refusal> {
    let wanted = sha256(&uri)?;
    let listed = |models: Owned<'_, ModelFacts>, shared: bool| {
        let info = |named: Named<ModelFacts>| {
            let version = match &wanted {
                Some(wanted) => named.versions.iter().rfind(|version| version.sha256 == *wanted),
                None => named.versions.last(),
            };
            let info = version?.info(&named.name, shared);
            Some((named.name, info))
        };
        models.names().into_iter().filter_map(info).collect::<Vec<_>>()
    };
    let shared = listed(caller.shared_models(), true).into_iter();
    let own = listed(caller.models(), false);
    let models: BTreeMap<String, ModelInfo> = shared.chain(own).collect();
    Ok(Json(models.into_values().collect()))
}

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

pub(super) async fn delete_guest(caller: Caller, Path(name): Path<String>) -> Result<StatusCode, Refusal> {
    let deleted = match caller.guests().withdraw(&name).await {
        Err(StateError::Disabled { .. }) => return Err(caller.guest_disabled(&name)),
        deleted => deleted?,
    };
    gone(&caller, deleted, "guest", &name)
}

pub(super) async fn delete_model(caller: Caller, Path(name): Path<String>) -> Result<StatusCode, Refusal> {
    let deleted = caller.models().withdraw(&name).await?;
    if !deleted && let Found::Version(_) = caller.shared_models().find(&name, None) {
        return Err(Refusal::not_found(format!(
            "{name:?} is none of your models but one that all tenants use; only whoever runs this host can remove it"
        )));
    }
    gone(&caller, deleted, "model", &name)
}

pub(super) async fn list_objects(caller: Caller, uri: Uri) -> Result<Json<ObjectPage>, Refusal> {
    let listing: Listing = query(&uri)?;
    let most = caller.config().limits.page;
    let limit = listing.limit.unwrap_or(PAGE);
    if limit == 0 || limit > most {
        return Err(Refusal::request(format!(
            "limit is {limit}, it must lie between 1 and {most}"
        )));
    }
    let store = caller.store(&listing.root)?;
    let page = store.list_as(listing.layout, listing.after.as_deref(), limit);
    Ok(Json(page.await?))
}

pub(super) async fn describe(caller: Caller, request: Request) -> Result<Json<Description>, Refusal> {
    let request: DescriptionRequest = json(request, &caller.config().limits).await?;
    let model = caller.model(&request.model)?;
    caller.may_use(&request.guest)?;
    let describe = async {
        let _permit = caller.asking().await?;
        let allowance = caller.allowance();
        let guest = caller.guest(&request.guest, &allowance).await?;
        caller
            .describe(&guest, &model, &request.parameters, &allowance)
            .await
    };
    let description = caller.in_time(describe).await?;
    Ok(Json(Description::clone(&description)))
}

pub(super) async fn load(caller: Caller) -> Json<Load> {
    let Standing { running, queued } = caller.scheduling().extractions.standing();
    Json(Load {
        queued: queued as u64,
        running: running as u64,
        lanes: caller.machine().lanes.config().lanes as u64,
        samples_per_second: caller.metrics().meter.per_second(),
    })
}

/// Names of guests and models: `[a-z0-9][a-z0-9._-]{0,62}`.
pub(super) fn checked_name(name: &str) -> Result<(), Refusal> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let rest = |byte: u8| plain(byte) || matches!(byte, b'.' | b'_' | b'-');
    if name.len() <= 63 && name.bytes().next().is_some_and(plain) && name.bytes().all(rest) {
        return Ok(());
    }
    Err(Refusal::request(format!(
        "the name {name:?} is not allowed: up to 63 of a-z, 0-9, '.', '_' and '-', the first a letter or digit"
    )))
}

/// The query of a request; keys nobody knows are refused.
pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Refusal> {
    Query::<T>::try_from_uri(uri)
        .map(|Query(query)| query)
        .map_err(|error| Refusal::request(format!("the query cannot be read: {}", error.body_text())))
}

/// A version as an address names it: `name` and `name:latest` for the newest, `name@sha256:<hex>` or `name?sha256=<hex>` for that one.
#[derive(Debug)]
struct Reference<'a> {
    name: &'a str,
    /// `None` for the newest.
    sha256: Option<String>,
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str, uri: &Uri) -> Result<Self, Refusal> {
        let asked = sha256(uri)?;
        let (name, named) = match text.split_once('@') {
            Some((name, digest)) => {
                let hex = digest.strip_prefix("sha256:").ok_or_else(|| {
                    Refusal::request(format!("{text:?} names no version; write {name}@sha256:<hex>"))
                })?;
                (name, Some(hex.to_ascii_lowercase()))
            }
            None => (text.strip_suffix(":latest").unwrap_or(text), None),
        };
        if named.is_some() && asked.is_some() && named != asked {
            return Err(Refusal::request(format!(
                "{text:?} and ?sha256= name different versions; leave one out"
            )));
        }
        Ok(Self {
            name,
            sha256: named.or(asked),
        })
    }
}

/// The version the query names; `None` for the newest.
pub(super) fn sha256(uri: &Uri) -> Result<Option<String>, Refusal> {
    let wanted: Version = query(uri)?;
    Ok(wanted.sha256)
}

/// What was found, if it is what was asked for.
pub(super) fn version<F: Facts>(found: Found<F>, what: &str, name: &str) -> Result<Arc<Stored<F>>, Refusal> {
    match found {
        Found::Version(stored) => Ok(stored),
        Found::Other(_) => Err(Refusal::not_found(format!(
            "this host has no such version of the {what} {name:?}"
        ))),
        Found::Nothing => Err(Refusal::not_found(format!("this host has no {what} {name:?}"))),
    }
}

fn gone(caller: &Caller, was_there: bool, what: &str, name: &str) -> Result<StatusCode, Refusal> {
    if was_there {
        caller.note(&format!("{what} removed"), name);
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Refusal::not_found(format!("this host has no {what} {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_name_the_newest_or_one_version() {
        let parse = |text: &str, query: &str| {
            let uri = format!("/v1/guests/a{query}").parse().unwrap();
            let found = Reference::parse(text, &uri);
            found
                .ok()
                .map(|found| (found.name.to_owned(), found.sha256.unwrap_or_default()))
        };
        let found = |name: &str, sha256: &str| Some((name.to_owned(), sha256.to_owned()));
        assert_eq!(parse("a", ""), found("a", ""));
        assert_eq!(parse("a:latest", ""), found("a", ""));
        assert_eq!(parse("a", "?sha256=aa"), found("a", "aa"));
        assert_eq!(parse("a@sha256:AA", ""), found("a", "aa"));
        assert_eq!(parse("a@sha256:aa", "?sha256=aa"), found("a", "aa"));
        assert_eq!(parse("a@sha256:aa", "?sha256=bb"), None);
        assert_eq!(parse("a@md5:aa", ""), None);
    }

    #[test]
    fn names_are_plain() {
        for good in ["a", "0", "squeezenet1_1", "a.b-c_d", &"x".repeat(63)] {
            assert!(checked_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "-a", "_a", "A", "a/b", "a b", "ä", &"x".repeat(64)] {
            assert!(checked_name(bad).is_err(), "{bad}");
        }
    }
}
