//! Settings of the vendors' stores.

use super::address::refused;
use crate::ObjectError;
use frostline_tensor::Cause;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use std::collections::BTreeMap;
use std::time::Duration;
use url::{Host, Url};

/// Settings by name, like environment variables.
pub(crate) type Variables = BTreeMap<String, String>;

/// Returns the `variables` that start with `vendor` (such as `AWS_`) and are known to the vendor's client.
pub(super) fn known<K: std::str::FromStr>(variables: &Variables, vendor: &str) -> Vec<(K, String)> {
    let named = variables.iter().filter(|(name, _)| name.starts_with(vendor));
    named
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value.clone())))
        .collect()
}

/// Returns true if `endpoint`, which comes from the setting `source`, needs plain HTTP. Plain HTTP is allowed
/// on this machine, and elsewhere if the setting `permission` is on.
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
    let url = Url::parse(endpoint).map_err(|error| {
        refused(
            root,
            Cause::with_message(format!("invalid URL in {source}"), error),
        )
    })?;
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

/// Returns true if a switch is on, in the spellings of the vendors' clients.
pub(super) fn is_on(value: &str) -> bool {
    ["1", "true", "on", "yes", "y"].contains(&value.to_ascii_lowercase().as_str())
}

/// Timeout of a connection attempt. Nearby stores connect in milliseconds, distant stores in under a second.
pub(super) const CONNECT: Duration = Duration::from_secs(5);

/// Timeout of a request. The largest images take this long only over links that are too slow for training.
pub(super) const REQUEST: Duration = Duration::from_secs(30);

pub(super) fn client() -> ClientOptions {
    ClientOptions::new()
        .with_connect_timeout(CONNECT)
        .with_timeout(REQUEST)
}

/// Returns the retry policy. Three retries within 20 s bridge short failures and 503 SlowDown responses.
/// Callers with more knowledge retry for longer.
pub(super) fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 3,
        retry_timeout: Duration::from_secs(20),
    }
}
