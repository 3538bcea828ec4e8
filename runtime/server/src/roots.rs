//! Health of the stores behind data roots. Failures are counted, logged and shown to the operator.

use crate::config::{Live, Root, StoreSettings, open_store};
use crate::metrics::StoreErrors;
use crate::sampler::LogRateLimit;
use frostline_objects::{Fault, ObjectError, Store};
use frostline_wire::FailingRoot;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of a probe. Stores typically answer in 30 ms.
pub(crate) const PROBE_DEADLINE: Duration = Duration::from_secs(4);

/// Minimum interval between log lines about the same root and kind of failure. Each line includes the number
/// of skipped failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Data root as opened, either for all tenants or for a single tenant with a separate role. A root with other
/// settings of its store is another one, so no store is used after its settings have changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OpenRoot {
    pub(crate) root: Root,
    tenant: Option<String>,
    settings: Option<StoreSettings>,
}

impl OpenRoot {
    /// Opens the store without recording failures.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Store::open`].
    pub(crate) fn open(&self) -> Result<Store, ObjectError> {
        let tenant = self.tenant.as_deref().unwrap_or_default();
        open_store(self.root.as_str(), self.settings.as_ref(), tenant)
    }

    /// Checks that the store answers, without recording failures. Returns true if the root is a prefix in a bucket
    /// without any object. Such a prefix does not exist, while a folder or a bucket can be empty.
    ///
    /// # Errors
    ///
    /// Returns the [`ObjectError`] of opening, probing or listing the store.
    pub(crate) async fn check(&self) -> Result<bool, ObjectError> {
        let store = self.open()?;
        store.probe(PROBE_DEADLINE).await?;
        if !self.root.is_prefix() {
            return Ok(false);
        }
        let page = store.list(None, 1).await?;
        Ok(page.objects.is_empty() && page.next.is_none())
    }
}

impl fmt::Display for OpenRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tenant {
            None => self.root.fmt(f),
            Some(tenant) => write!(f, "{} as {tenant}", self.root),
        }
    }
}

/// Health of all data roots.
pub(crate) struct RootHealth {
    live: Live,
    /// True if error messages for tenants must not reveal the settings of the stores.
    hides_settings: bool,
    errors: StoreErrors,
    roots: Mutex<BTreeMap<String, RootState>>,
}

#[derive(Default)]
struct RootState {
    failing: Option<Failing>,
    logged: HashMap<Fault, LogRateLimit>,
}

#[derive(Clone)]
struct Failing {
    since: Instant,
    fault: Fault,
    error: String,
}

impl RootHealth {
    pub(crate) fn new(live: Live, hides_settings: bool, errors: StoreErrors) -> Arc<Self> {
        Arc::new(Self {
            live,
            hides_settings,
            errors,
            roots: Mutex::default(),
        })
    }

    /// Returns the key under which `root` is opened for a tenant.
    pub(crate) fn root_for(&self, root: &Root, tenant: &str) -> OpenRoot {
        let live = self.live.get();
        let by_tenant = live.stores.is_by_tenant(root.as_str());
        OpenRoot {
            root: root.clone(),
            tenant: by_tenant.then(|| tenant.to_owned()),
            settings: live.stores.settings(root.as_str()).cloned(),
        }
    }

    /// Opens the store of a root and records failed operations.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Store::open`].
    pub(crate) fn open(self: &Arc<Self>, root: &OpenRoot) -> Result<Store, ObjectError> {
        let health = Arc::clone(self);
        let name = root.to_string();
        let store = root
            .open()
            .inspect_err(|error| self.record(&name, fault(error), error))?;
        let record = move |fault, error: &ObjectError| health.record(&name, fault, error);
        Ok(if self.hides_settings {
            store.lend(record)
        } else {
            store.on_fault(record)
        })
    }

    /// Returns the error that tenants may see, without advice about the host's settings.
    pub(crate) fn for_tenants(&self, error: ObjectError) -> ObjectError {
        if self.hides_settings { error.lent() } else { error }
    }

    /// Counts a failure, and logs it unless the same failure of this root was logged less than a minute ago.
    fn record(&self, root: &str, fault: Fault, error: &ObjectError) {
        self.errors.count(root, fault);
        let sampled = self.state(root, |state| {
            let logged = state.logged.entry(fault);
            logged
                .or_insert_with(|| LogRateLimit::within(LOG_INTERVAL, 1))
                .sample()
        });
        if let Some(left_out) = sampled {
            tracing::warn!(root, fault = fault.as_str(), left_out, %error, "data root store failed");
        }
    }

    fn state<T>(&self, root: &str, change: impl FnOnce(&mut RootState) -> T) -> T {
        change(self.roots.lock().entry(root.to_owned()).or_default())
    }

    /// Forgets all roots that are not in `roots`, including their metrics.
    pub(crate) fn retain(&self, roots: &BTreeSet<OpenRoot>) {
        let names: BTreeSet<String> = roots.iter().map(OpenRoot::to_string).collect();
        self.roots.lock().retain(|name, _| {
            let stays = names.contains(name);
            if !stays {
                self.errors.forget(name);
            }
            stays
        });
    }

    pub(crate) fn record_probe(&self, root: &str, outcome: Result<(), ObjectError>) {
        let recovered = self.state(root, |state| match outcome {
            Ok(()) => state.failing.take(),
            Err(error) => {
                let since = state.failing.as_ref().map(|failing| failing.since);
                state.failing = Some(Failing {
                    since: since.unwrap_or_else(Instant::now),
                    fault: fault(&error),
                    error: error.to_string(),
                });
                None
            }
        });
        if let Some(failing) = recovered {
            let seconds = failing.since.elapsed().as_secs();
            tracing::info!(root, seconds, "data root store recovered");
        }
    }

    /// Returns the roots whose last probe failed.
    pub(crate) fn failing(&self) -> Vec<FailingRoot> {
        let roots = self.roots.lock();
        let failing = roots.iter().filter_map(|(root, state)| {
            let failing = state.failing.as_ref()?;
            Some(FailingRoot {
                root: root.clone(),
                fault: failing.fault.as_str().to_owned(),
                seconds: failing.since.elapsed().as_secs(),
                error: failing.error.clone(),
            })
        });
        failing.collect()
    }

    /// Returns all probed roots with true if the last probe succeeded.
    pub(crate) fn availability(&self) -> Vec<(String, bool)> {
        let roots = self.roots.lock();
        let up = roots
            .iter()
            .map(|(root, state)| (root.clone(), state.failing.is_none()));
        up.collect()
    }
}

fn fault(error: &ObjectError) -> Fault {
    error.fault().unwrap_or(Fault::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HostConfig;

    fn live() -> Live {
        HostConfig::from_toml("").unwrap().live
    }

    fn busy() -> ObjectError {
        ObjectError::Unreachable {
            root: "s3://photos".to_owned(),
            reason: "refused".to_owned(),
            advice: "check the address",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_counted_each_time_and_logged_once_a_minute() {
        let health = RootHealth::new(live(), true, StoreErrors::default());
        let left_out = || {
            health.state("s3://photos", |state| {
                state.logged[&Fault::Unreachable].left_out()
            })
        };
        for _ in 0..5 {
            health.record("s3://photos", Fault::Unreachable, &busy());
        }
        assert_eq!(left_out(), 4);
        tokio::time::advance(LOG_INTERVAL).await;
        health.record("s3://photos", Fault::Unreachable, &busy());
        assert_eq!(
            (
                left_out(),
                health.errors.failures("s3://photos", Fault::Unreachable)
            ),
            (0, 6)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_root_fails_from_its_first_probe_that_failed_until_one_succeeds() {
        let health = RootHealth::new(live(), true, StoreErrors::default());
        health.record_probe("s3://photos", Err(busy()));
        tokio::time::advance(Duration::from_secs(12)).await;
        health.record_probe("s3://photos", Err(busy()));
        let [failing] = &health.failing()[..] else {
            panic!()
        };
        assert_eq!((failing.fault.as_str(), failing.seconds), ("unreachable", 12));
        assert_eq!(health.availability(), [("s3://photos".to_owned(), false)]);
        health.record_probe("s3://photos", Ok(()));
        assert!(health.failing().is_empty() && health.availability()[0].1);
    }
}
