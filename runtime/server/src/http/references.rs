//! Names, versions and query parameters in request URLs.

use super::queries::Version;
use crate::refusal::Refusal;
use axum::extract::Query;
use frostline_state::{Facts, FindResult, StoredVersion};
use http::Uri;
use serde::de::DeserializeOwned;
use std::sync::Arc;

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Validates the name of a guest or model: `[a-z0-9][a-z0-9._-]{0,62}`.
pub(super) fn checked_name(name: &str) -> Result<(), Refusal> {
    if name.len() <= 63
        && name.bytes().next().is_some_and(is_plain)
        && name
            .bytes()
            .all(|byte| is_plain(byte) || matches!(byte, b'.' | b'_' | b'-'))
    {
        return Ok(());
    }
    Err(Refusal::request(format!(
        "invalid name {name:?}: use up to 63 of a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
    )))
}

/// Parses the query of a request. Unknown keys are refused.
pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Refusal> {
    Query::<T>::try_from_uri(uri)
        .map(|Query(query)| query)
        .map_err(|error| Refusal::request(format!("invalid query: {}", error.body_text())))
}

/// Reference to a version in a URL: `name` or `name:latest` for the newest, and `name@sha256:<hex>` or
/// `name?sha256=<hex>` for a specific version.
#[derive(Debug)]
pub(super) struct Reference<'a> {
    pub(super) name: &'a str,
    /// SHA-256 of the version, or `None` for the newest.
    pub(super) sha256: Option<String>,
}

impl<'a> Reference<'a> {
    pub(super) fn parse(text: &'a str, uri: &Uri) -> Result<Self, Refusal> {
        let asked = sha256(uri)?;
        let (name, named) = match text.split_once('@') {
            Some((name, digest)) => {
                let hex = digest.strip_prefix("sha256:").ok_or_else(|| {
                    Refusal::request(format!("invalid version in {text:?}; write {name}@sha256:<hex>"))
                })?;
                (name, Some(hex.to_ascii_lowercase()))
            }
            None => (text.strip_suffix(":latest").unwrap_or(text), None),
        };
        if named.is_some() && asked.is_some() && named != asked {
            return Err(Refusal::request(format!(
                "{text:?} and ?sha256= refer to different versions; remove one of them"
            )));
        }
        Ok(Self {
            name,
            sha256: named.or(asked),
        })
    }
}

/// Returns the SHA-256 in the query, or `None` for the newest version.
pub(super) fn sha256(uri: &Uri) -> Result<Option<String>, Refusal> {
    let wanted: Version = query(uri)?;
    Ok(wanted.sha256)
}

/// Returns the version, or [`Refusal::NotFound`] if the name or the version does not exist.
pub(super) fn version<F: Facts>(
    found: FindResult<F>,
    what: &str,
    name: &str,
) -> Result<Arc<StoredVersion<F>>, Refusal> {
    match found {
        FindResult::Version(stored) => Ok(stored),
        FindResult::OtherVersion(_) => Err(Refusal::not_found(format!(
            "unknown version of the {what} {name:?}"
        ))),
        FindResult::Missing => Err(Refusal::not_found(format!("unknown {what} {name:?}"))),
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
