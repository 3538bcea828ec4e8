//! Background tasks of a running host.

use crate::config::{DataRoots, StateLocation};
use crate::guest_logs::since_1970;
use crate::http::RemoteAdmins;
use crate::roots::OpenRoot;
use crate::service::Service;
use crate::tls::Certificate;
use crate::token::{TokenError, TokenFile};
use futures::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};
use tokio_util::sync::CancellationToken;

/// Interval at which data roots are probed by listing the first keys. A failure is detected within 8 s, even
/// if the host is idle, and the requests to Amazon S3 cost 11 cents per day and root.
const PROBE: Duration = Duration::from_secs(4);

/// Maximum number of data roots probed in a round, as many as stores stay open. A host with more roots probes
/// them in turns.
const PROBES: usize = 64;

/// Interval for removing interrupted uploads. This is also done at every upload.
const SWEEP: Duration = Duration::from_secs(3600);

/// Interval for reloading certificates and token files. A replaced file is used within this time.
const REFRESH: Duration = Duration::from_secs(5);

/// Interval at which the free disk space is measured. A full disk fills within minutes.
const DISKS: Duration = Duration::from_secs(15);

/// Interval of checks for removed objects. When a tenant is removed, all hosts delete the local files within
/// this time.
const PRUNE: Duration = Duration::from_secs(60);

/// Minimum time between two checks for removed objects.
const PRUNE_SPACING: Duration = Duration::from_secs(1);

/// Files to reload after a change.
pub(super) struct Refreshed {
    pub(super) certificate: Option<Arc<Certificate>>,
    pub(super) token: Arc<TokenFile>,
    pub(super) admins: Option<RemoteAdmins>,
}

impl Refreshed {
    /// Reloads changed files. If a file cannot be read, the previous content stays in use.
    fn refresh(&self) {
        match self.certificate.as_ref().map(|certificate| certificate.refresh()) {
            Some(Ok(true)) => tracing::info!("reloaded the certificate"),
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot reload the certificate, so the current one stays in use")
            }
            _ => {}
        }
        log_reload(&self.token, self.token.refresh());
        if let Some(admins) = &self.admins {
            admins.refresh(log_reload);
        }
    }
}

/// Logs the outcome of reloading a token.
fn log_reload(token: &TokenFile, reloaded: Result<bool, TokenError>) {
    match reloaded {
        Ok(true) => tracing::info!(file = %token.path().display(), "reloaded the token"),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "cannot reload the token, so the current one stays in use"),
    }
}

/// Periodically reloads files until `stop` is cancelled.
#[expect(clippy::disallowed_methods, reason = "internal work, bounded by the host")]
pub(super) async fn refresh(refreshed: Refreshed, stop: CancellationToken) {
    let refreshed = Arc::new(refreshed);
    while tokio::time::timeout(REFRESH, stop.cancelled()).await.is_err() {
        let refreshed = Arc::clone(&refreshed);
        if tokio::task::spawn_blocking(move || refreshed.refresh())
            .await
            .is_err()
        {
            tracing::error!("cannot reload certificates and tokens");
        }
    }
}

/// Returns the data roots that tenants may read now.
fn granted_roots(service: &Service) -> BTreeSet<OpenRoot> {
    let mut granted = BTreeSet::new();
    for (name, record) in service.tenants.all() {
        if let Ok(data) = DataRoots::new(&record.data)
            && !record.disabled
            && record.kept_until.is_none()
        {
            let health = &service.operations.roots;
            granted.extend(data.iter().map(|root| health.root_for(root, &name)));
        }
    }
    granted
}

/// Periodically probes the data roots of the tenants until `stop` is cancelled.
pub(super) async fn probe_roots(service: Arc<Service>, stop: CancellationToken) {
    let library = &service.library;
    let health = &service.operations.roots;
    let mut rounds = interval(PROBE);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let probing = async {
        let mut last: Option<OpenRoot> = None;
        loop {
            rounds.tick().await;
            let roots = granted_roots(&service);
            health.retain(&roots);
            let behind = roots
                .iter()
                .filter(|root| last.as_ref().is_some_and(|last| *root > last));
            let due: Vec<&OpenRoot> = behind.chain(&roots).take(PROBES.min(roots.len())).collect();
            join_all(
                due.iter()
                    .map(async |root| health.record_probe(&root.to_string(), library.probe(root).await)),
            )
            .await;
            last = due.last().map(|root| (*root).clone());
        }
    };
    stop.run_until_cancelled(probing).await;
}

/// Periodically measures the free disk space of the host's folders until `stop` is cancelled.
#[expect(
    clippy::disallowed_methods,
    reason = "internal work, one thread even if a file system hangs"
)]
pub(super) async fn measure_disks(service: Arc<Service>, stop: CancellationToken) {
    let config = &service.config;
    let mut folders = vec![("local", config.local.clone())];
    if let StateLocation::Directory(path) = &config.state {
        folders.push(("state", path.clone()));
    }
    let measuring = async {
        loop {
            for (name, path) in folders.clone() {
                let measured = spawn_blocking(move || rustix::fs::statvfs(&path)).await;
                if let Ok(Ok(disk)) = measured {
                    let bytes =
                        [disk.f_bavail, disk.f_blocks].map(|blocks| blocks.saturating_mul(disk.f_frsize));
                    service.operations.metrics.set_disk(name, bytes);
                }
            }
            tokio::time::sleep(DISKS).await;
        }
    };
    stop.run_until_cancelled(measuring).await;
}

/// Periodically removes interrupted uploads and old log lines until `stop` is cancelled.
pub(super) async fn sweep(service: Arc<Service>, stop: CancellationToken) {
    while tokio::time::timeout(SWEEP, stop.cancelled()).await.is_err() {
        service.library.partials.sweep().await;
        service.operations.lines.sweep(since_1970());
    }
}

/// Removes the local files and open sessions of deleted guests, models and tenants: at once after a deletion
/// through this host, and periodically after other changes of the state. Returns when `stop` is cancelled.
pub(super) async fn prune(service: Arc<Service>, stop: CancellationToken) {
    let mut pruned = None;
    let mut due = interval_at(Instant::now() + PRUNE, PRUNE);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let at_once = tokio::select! {
            () = stop.cancelled() => return,
            () = service.library.deleted.notified() => true,
            _ = due.tick() => false,
        };
        service.erase_expired_tenants().await;
        let change = service.library.journal.last_change().await;
        if at_once || pruned != Some(change) {
            service.prune().await;
            // A session that is still computing can only be closed the next time.
            pruned = (!at_once).then_some(change);
        }
        // A tenant that deletes again and again does not keep the host busy with pruning.
        if tokio::time::timeout(PRUNE_SPACING, stop.cancelled())
            .await
            .is_ok()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Host;
    use crate::config::HostConfig;
    use crate::tenants::{IssuedToken, TenantRecord};
    use frostline_state::{CheckedUpload, StateError};

    const DAY: i64 = 86_400;

    #[tokio::test]
    async fn a_removed_tenant_is_erased_after_the_period() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let text = format!("listen = '127.0.0.1:0'\nstate = '{}'", state.display());
        let host = Host::start(HostConfig::from_toml(&text).unwrap()).await.unwrap();
        let service = &host.service;
        let now = service.clock.now();
        let issued = IssuedToken::issue("acme", now, None).unwrap();
        let mut record = TenantRecord::new(Vec::new(), issued.stored);
        let set = async |record: &TenantRecord| {
            let set = |_: Option<&TenantRecord>| Ok::<_, StateError>(Some(record.clone()));
            service.tenants.records.update("acme", set).await.unwrap();
        };
        set(&record).await;
        let guest = CheckedUpload {
            sha256: "aa".to_owned(),
            bytes: "guest".into(),
            facts: (),
        };
        let guests = || service.library.guests.owned_by("acme");
        guests().put("prefix", guest, |_| Ok(())).await.unwrap();
        let is_kept = async |days: i64| {
            service.config.clock.shift(days * DAY);
            service.erase_expired_tenants().await;
            let kept = service.tenants.records.get("acme").is_some();
            assert_eq!(kept, guests().list().len() == 1);
            kept
        };
        assert!(is_kept(1000).await, "it was not removed");
        record.kept_until = Some(now + 7 * 86_400);
        set(&record).await;
        assert!(service.tenants.admit(&issued.text, now).is_err());
        for (days, kept) in [(0, true), (7, true), (8, false)] {
            assert_eq!(is_kept(days).await, kept, "after {days} days");
        }
    }
}
