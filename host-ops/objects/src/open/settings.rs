//! The settings that the vendors' stores are opened with.

use super::address::refused;
use crate::ObjectError;
use frostline_tensor::Cause;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use std::collections::BTreeMap;
use std::time::Duration;
use url::{Host, Url};

/// Settings by name, as an environment has them.
pub(crate) type Variables = BTreeMap<String, String>;

/// Those of `variables` that start with `vendor` (such as `AWS_`) and that the vendor's client knows.
pub(super) fn known<K: std::str::FromStr>(variables: &Variables, vendor: &str) -> Vec<(K, String)> {
    let named = variables.iter().filter(|(name, _)| name.starts_with(vendor));
    named
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value.clone())))
        .collect()
}

/// Whether plain HTTP has to be allowed for `endpoint`, which `source` gave: on this machine it is, elsewhere where `permission`
/// is set to say so.
pub(super) fn plain_http(
    root: &str,
    source: &str,
    endpoint: Option<&str>,
    variables: &Variables,
    permission: &str,
) -> Result<bool, ObjectError> {
    let Some(endpoint) = endpoint else {
        return Ok(false);
    };
    let url = Url::parse(endpoint)
        .map_err(|error| refused(root, Cause::explained(format!("invalid URL in {source}"), error)))?;
    if url.scheme() != "http" {
        return Ok(false);
    }
    let here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if here || is_true(variables, permission) {
        return Ok(true);
    }
    let reason = format!(
        "{source} is plain http:// to another machine; use https://, or set {permission}=true on a network you trust"
    );
    Err(refused(root, reason))
}

fn is_true(variables: &Variables, name: &str) -> bool {
    variables.get(name).is_some_and(|value| is_on(value))
}

/// Whether a switch is on, in the words that the vendors' clients know.
pub(super) fn is_on(value: &str) -> bool {
    ["1", "true", "on", "yes", "y"].contains(&value.to_ascii_lowercase().as_str())
}

/// A store beside the host connects in milliseconds, one across the world in under a second.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

/// The largest photos take that long only over a link that is no use for training.
pub(super) const REQUEST: Duration = Duration::from_secs(30);

pub(super) fn client() -> ClientOptions {
    ClientOptions::new()
        .with_connect_timeout(CONNECT)
        .with_timeout(REQUEST)
}

/// Three repetitions within 20 s ride out a store's hiccup or its 503 SlowDown; whoever asked retries beyond that, knowing
/// more than this layer does.
pub(super) fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 3,
        retry_timeout: Duration::from_secs(20),
    }
}
