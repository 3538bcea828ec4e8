//! Replaces settings of a running host.

use super::error::StartError;
use super::{RunningHost, check_data};
use crate::config::{HostSettings, StateLocation};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum time to check the data folders. A file system that hangs must not keep the caller from stopping
/// the host.
const DATA_TIMEOUT: Duration = Duration::from_secs(10);

impl RunningHost {
    /// Replaces the data roots, stores, quotas and remote admins by those in `read`, for requests that arrive afterwards. Other
    /// changed settings are named in the log, because they take effect at the next start. If the settings could
    /// not be read or are invalid, nothing changes. Logs the outcome.
    pub async fn reload<E: Display>(&self, read: Result<HostSettings, E>) {
        let reloaded = match read {
            Ok(settings) => self.apply(settings).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let failed = &self.service.operations.metrics.reload_failed;
        failed.set(i64::from(reloaded.is_err()));
        match reloaded {
            Ok(Changes { live, at_start }) => {
                tracing::info!(changed = live.join(", "), "reloaded the configuration");
                if !at_start.is_empty() {
                    tracing::warn!(
                        settings = at_start.join(", "),
                        "these changed settings take effect when the host is restarted"
                    );
                }
            }
            Err(error) => tracing::error!(
                error,
                "cannot reload the configuration, so the current one stays in use"
            ),
        }
    }

    async fn apply(&self, settings: HostSettings) -> Result<Changes, StartError> {
        let config = settings.clone().check()?;
        let checked = timeout(DATA_TIMEOUT, check_data(&config)).await;
        checked.map_err(|_| StartError::DataTimeout {
            seconds: DATA_TIMEOUT.as_secs(),
        })??;
        let mut written = self.written.lock();
        let mut changes = Changes::between(&written, &settings);
        if let StateLocation::Store(url) = &self.service.config.state {
            let before = self.service.config.live.get();
            let after = config.live.get();
            if before.stores.settings(url) != after.stores.settings(url) {
                changes.at_start.push("store of the state".to_owned());
            }
        }
        if let Some(admins) = &self.admins {
            admins.replace(&config.live.get().admins)?;
        }
        written.data = settings.data;
        written.quota = settings.quota;
        written.store = settings.store;
        written.admins = settings.admins;
        written.admin_token_file = settings.admin_token_file;
        self.service.config.live.replace(&config.live);
        Ok(changes)
    }
}

/// Names of settings that differ, such as `data` or `engine.lanes`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    /// Settings that a running host replaces.
    live: Vec<String>,
    /// Settings that are only read at the start.
    at_start: Vec<String>,
}

impl Changes {
    fn between(before: &HostSettings, after: &HostSettings) -> Self {
        let before = by_name(before);
        let after = by_name(after);
        let mut changes = Self::default();
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names {
            if before.get(name) == after.get(name) {
                continue;
            }
            match name.split('.').next() {
                Some("data" | "quota" | "store" | "admins" | "admin_token_file") => {
                    changes.live.push(name.clone())
                }
                _ => changes.at_start.push(name.clone()),
            }
        }
        changes
    }
}

/// Returns all settings by name. A section has a name for each key.
fn by_name(settings: &HostSettings) -> BTreeMap<String, Value> {
    let Ok(Value::Object(settings)) = serde_json::to_value(settings) else {
        return BTreeMap::new();
    };
    let mut all = BTreeMap::new();
    for (name, value) in settings {
        match value {
            Value::Object(section) => {
                all.extend(
                    section
                        .into_iter()
                        .map(|(key, value)| (format!("{name}.{key}"), value)),
                );
            }
            value => _ = all.insert(name, value),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_named_and_divided_by_when_they_take_effect() {
        let settings = |text: &str| HostSettings::from_toml(text).unwrap();
        let before = settings("data = [\"/srv/a\"]\n[quota]\nrunning = 3\n[store.photos]\nregion = \"a\"");
        let after = settings(
            "data = [\"/srv/b\"]\nlisten = \"127.0.0.1:1\"\n[quota]\nrunning = 4\n[engine]\nlanes = 2\n[store.scans]\nregion = \"a\"",
        );
        let changes = Changes::between(&before, &after);
        assert_eq!(
            changes.live,
            ["data", "quota.running", "store.photos", "store.scans"]
        );
        assert_eq!(changes.at_start, ["engine.lanes", "listen"]);
        assert_eq!(Changes::between(&after, &after), Changes::default());
    }
}
