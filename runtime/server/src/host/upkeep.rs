//! What is looked after while a host runs.

use crate::guest_logs::{GuestLogs, since_1970};
use crate::roots::OpenRoot;
use crate::service::Service;
use crate::state::Partials;
use crate::tenants::CONFIGURED;
use crate::tls::Certificate;
use crate::token::TokenFile;
use futures::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// How often a root is asked for the beginning of its listing: a fault is known within 8 s, also of a host that nobody uses, for 11 cents
/// a day at Amazon's price.
const PROBE: Duration = Duration::from_secs(4);

/// How often leftovers of uploads are looked through; they are at every upload too.
const SWEEP: Duration = Duration::from_secs(3600);

/// How often certificates and tokens in files are read again: whoever replaces one waits some seconds for it.
const REFRESH: Duration = Duration::from_secs(5);

/// How often to look whether something was removed: a removed tenant's files are gone a minute later on every host.
const PRUNE: Duration = Duration::from_secs(60);

/// What is read again when its files change.
pub(super) struct Refreshed {
    pub(super) certificate: Option<Arc<Certificate>>,
    pub(super) tokens: Vec<Arc<TokenFile>>,
}

impl Refreshed {
    /// What cannot be read leaves what was.
    fn refresh(&self) {
        match self.certificate.as_ref().map(|certificate| certificate.refresh()) {
            Some(Ok(true)) => tracing::info!("reloaded the certificate"),
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot reload the certificate; keeping the current one")
            }
            _ => {}
        }
        for token in &self.tokens {
            match token.refresh() {
                Ok(true) => {
                    tracing::info!(file = %token.path().display(), "reloaded the token")
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "cannot reload the token; keeping the current one"),
            }
        }
    }
}

/// Reads again what may have changed from time to time, until `stop`.
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

/// Probes the configured data roots, and those of tenants that are in use, until `stop`.
pub(super) async fn probe_roots(service: Arc<Service>, stop: CancellationToken) {
    let (library, health) = (&service.library, &service.operations.roots);
    let mut rounds = interval(PROBE);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let probing = async {
        loop {
            rounds.tick().await;
            let configured = service.config.data.iter();
            let configured = configured.map(|root| health.root_for(root, CONFIGURED));
            let roots: BTreeSet<OpenRoot> = configured.chain(library.open_roots()).collect();
            health.retain(&roots);
            let probe = async |root: &OpenRoot| health.probed(&root.to_string(), library.probe(root).await);
            join_all(roots.iter().map(probe)).await;
        }
    };
    stop.run_until_cancelled(probing).await;
}

/// Removes leftovers of uploads and forgets old lines of guests from time to time, until `stop`.
pub(super) async fn sweep(partials: Partials, lines: Arc<GuestLogs>, stop: CancellationToken) {
    while tokio::time::timeout(SWEEP, stop.cancelled()).await.is_err() {
        partials.sweep().await;
        lines.sweep(since_1970());
    }
}

/// Removes what the host keeps of guests, models and tenants that any host removed, after each change of the state, until `stop`.
pub(super) async fn prune(service: Arc<Service>, stop: CancellationToken) {
    let mut pruned = None;
    while tokio::time::timeout(PRUNE, stop.cancelled()).await.is_err() {
        let change = service.library.journal.last_change().await;
        if pruned != Some(change) {
            service.prune().await;
            pruned = Some(change);
        }
    }
}
