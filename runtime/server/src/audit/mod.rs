//! The audit log: all actions of admins, and uploads and removals by tenants, across all hosts of a state.
//!
//! Entries are stored in the state and also written to the host's log. Admins and tenants have separate
//! folders, so that tenants cannot displace the entries of admins.

mod ledger;
mod rates;
#[cfg(test)]
mod tests;

use crate::clock::Clock;
use crate::refusal::Refusal;
use crate::state::{DailyFolder, Day, StateError};
use frostline_batching::Reserved;
use frostline_objects::Store;
use frostline_wire::AuditEntry;
use futures::future::join;
use ledger::{Ledger, unreadable};
use parking_lot::Mutex;
use rates::{MAX_PER_MINUTE, Rates};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const ADMINS: DailyFolder = DailyFolder("audit/admins");
const TENANTS: DailyFolder = DailyFolder("audit/tenants");

/// Maximum number of days with entries of admins: a year, and a month to review it.
const ADMINS_KEPT: usize = 400;

/// Maximum number of days with entries of tenants. This is lower because tenants cause far more entries.
const TENANTS_KEPT: usize = 40;

/// Interval at which queued entries are written. Entries of admins are only queued if the immediate write
/// failed.
const WRITE: Duration = Duration::from_secs(30);

/// Timeout of a write, which delays the answer to an admin and the shutdown of a host.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of a detail in bytes. Names and reasons are far shorter.
const DETAIL: usize = 1000;

/// Action of an entry for dropped entries.
const LEFT_OUT: &str = "acts not written";

/// See the module documentation.
pub(crate) struct Audit {
    store: Arc<Store>,
    clock: Arc<Clock>,
    run: String,
    /// Name of this host.
    host: String,
    admins: Ledger,
    tenants: Ledger,
    rates: Mutex<Rates>,
}

impl Audit {
    /// Creates the audit log of the host `host`. Entries are stored in `store` under the random id `run` of
    /// this host process.
    pub(crate) fn new(store: Arc<Store>, run: String, host: String, clock: Arc<Clock>) -> Self {
        Self {
            store,
            clock,
            run,
            host,
            admins: Ledger::new(ADMINS, ADMINS_KEPT),
            tenants: Ledger::new(TENANTS, TENANTS_KEPT),
            rates: Mutex::default(),
        }
    }

    /// Records an action of an admin and writes it to the state. If the state is not available in time, the
    /// entry will be written later.
    pub(crate) async fn admin(&self, who: &str, what: &str, tenant: &str, detail: impl Into<String>) {
        let entry = self.entry(who, what, tenant, detail.into());
        self.admins.note(entry);
        warn_of(self.write_ledger(&self.admins).await);
    }

    /// Records an action of a tenant, to be written within half a minute. The number of entries per tenant
    /// and minute is limited.
    pub(crate) fn tenant(&self, tenant: &str, address: IpAddr, what: &str, detail: impl Into<String>) {
        let who = format!("tenant {tenant} at {address}");
        let counted = self.rates.lock().count(tenant, self.clock.now() / 60);
        let dropped = (counted.left_out > 0).then(|| {
            let detail = format!(
                "{} dropped: limit of {MAX_PER_MINUTE} per minute exceeded",
                counted.left_out
            );
            (LEFT_OUT, detail)
        });
        let action = match counted.beyond {
            0 => Some((what, detail.into())),
            1 => Some((LEFT_OUT, format!("limit of {MAX_PER_MINUTE} per minute exceeded"))),
            _ => None,
        };
        for (what, detail) in dropped.into_iter().chain(action) {
            self.tenants.note(self.entry(&who, what, tenant, detail));
        }
    }

    /// Writes all waiting entries.
    ///
    /// # Errors
    /// Returns the reason if some entries could not be written. They are included in the next write.
    pub(crate) async fn write(&self) -> Result<(), String> {
        let (admins, tenants) = join(self.write_ledger(&self.admins), self.write_ledger(&self.tenants)).await;
        admins.and(tenants)
    }

    /// Reads the last `limit` entries of all hosts, oldest first. If `tenant` is given, other tenants are
    /// filtered out. `memory` grows by the size of the entries.
    ///
    /// # Errors
    /// Returns [`Refusal::Busy`] if the memory cannot grow, and [`Refusal::Host`] if the entries could not be
    /// read in time.
    pub(crate) async fn last(
        &self,
        tenant: Option<&str>,
        limit: usize,
        memory: &mut Reserved,
    ) -> Result<Vec<AuditEntry>, Refusal> {
        // The entries of this host are still missing if this fails, but they are in the host's log.
        self.write().await.ok();
        let store = &self.store;
        let today = Day::at(self.clock.now());
        let both = async {
            let mut entries = self.admins.last(store, today, tenant, limit, memory).await?;
            entries.extend(self.tenants.last(store, today, tenant, limit, memory).await?);
            Ok::<_, Refusal>(entries)
        };
        let read = timeout(READ_TIMEOUT, both).await;
        let mut entries = read.map_err(|_| unreadable(late(READ_TIMEOUT)))??;
        entries.sort_by_key(|entry| entry.at);
        Ok(entries.split_off(entries.len().saturating_sub(limit)))
    }

    async fn write_ledger(&self, ledger: &Ledger) -> Result<(), String> {
        let writing = ledger.write(&self.store, &self.run, |count| {
            let detail = format!("{count}, since the state could not be written");
            self.entry("host", LEFT_OUT, "", detail)
        });
        let written = timeout(WRITE_TIMEOUT, writing)
            .await
            .map_err(|_| late(WRITE_TIMEOUT))?;
        written.map_err(|error| error.to_string())
    }

    fn entry(&self, who: &str, what: &str, tenant: &str, mut detail: String) -> AuditEntry {
        detail.truncate(detail.floor_char_boundary(DETAIL));
        AuditEntry {
            at: self.clock.now(),
            host: self.host.clone(),
            who: who.to_owned(),
            what: what.to_owned(),
            tenant: tenant.to_owned(),
            detail,
        }
    }

    /// Writes waiting entries and removes old ones until `stop` is cancelled.
    pub(crate) async fn keep(&self, stop: CancellationToken) {
        let mut swept = None;
        while timeout(WRITE, stop.cancelled()).await.is_err() {
            warn_of(self.write().await);
            let day = Day::at(self.clock.now());
            if swept == Some(day) || !self.clock.may_expire() {
                continue;
            }
            swept = Some(day);
            for ledger in [&self.admins, &self.tenants] {
                let sweeping = timeout(READ_TIMEOUT, ledger.sweep(&self.store)).await;
                if let Ok(Err(error)) = sweeping {
                    let folder = ledger.folder.0;
                    tracing::warn!(%error, folder, "cannot remove old audit entries from the state");
                }
            }
        }
    }
}

/// Copies all entries that are missing in the destination. Used to back up and to restore a state.
///
/// # Errors
/// Returns [`StateError`] if either store fails.
pub(crate) async fn copy_audit(from: &Store, to: &Store) -> Result<(), StateError> {
    for folder in [ADMINS, TENANTS] {
        let there = folder.keys(to, None, |_| true).await?;
        for key in folder.keys(from, None, |_| true).await? {
            if there.binary_search(&key).is_ok() {
                continue;
            }
            match from.read(&key).await {
                // A host has removed the object in the meantime because it was too old.
                Err(error) if error.is_not_found() => {}
                bytes => to.put_same(&key, bytes?).await?,
            }
        }
    }
    Ok(())
}

fn warn_of(written: Result<(), String>) {
    if let Err(error) = written {
        tracing::warn!(error, "cannot write audit entries to the state; retrying later");
    }
}

fn late(timeout: Duration) -> String {
    format!("the state did not answer within {} s", timeout.as_secs())
}
