//! The audit log: all actions of admins, and uploads and removals by tenants, across all hosts of a state.
//!
//! Entries are stored in the state and also written to the host's log. Admins and tenants have separate
//! folders, so that tenants cannot displace the entries of admins.

mod ledger;
mod rates;
#[cfg(test)]
mod tests;

use crate::clock::Clock;
use crate::daily::{DailyFolder, DailySweep};
use crate::error::{AuditError, StateError};
use crate::folder::{copy as copy_object, within};
use frostline_batching::Reserved;
use frostline_objects::Store;
use frostline_wire::AuditEntry;
use futures::future::join;
use ledger::Ledger;
use parking_lot::Mutex;
use rates::{MAX_PER_MINUTE, Rates};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A year of entries of admins, and a month to review it.
const ADMINS: DailyFolder = DailyFolder::new("audit/admins", 400);

/// Entries of tenants are kept for fewer days, because tenants cause far more entries.
const TENANTS: DailyFolder = DailyFolder::new("audit/tenants", 40);

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

/// The audit log of a state: actions of admins, which are written at once, and of tenants, which are written within half a
/// minute.
pub struct Audit {
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
    pub fn new(store: Arc<Store>, run: String, host: String, clock: Arc<Clock>) -> Self {
        Self {
            store,
            clock,
            run,
            host,
            admins: Ledger::new(ADMINS),
            tenants: Ledger::new(TENANTS),
            rates: Mutex::default(),
        }
    }

    /// Records the action `what` of the admin `who` and writes it to the state. If the state is not available within 5
    /// seconds, the entry will be written later. `tenant` can be empty, and `detail` is cut to 1,000 bytes.
    pub async fn admin(&self, who: &str, what: &str, tenant: &str, detail: impl Into<String>) {
        let entry = self.entry(who, what, tenant, detail.into());
        self.admins.note(entry);
        warn_of(self.write_ledger(&self.admins).await);
    }

    /// Records the action `what` of a tenant, to be written within half a minute. The number of entries per tenant
    /// and minute is limited to 60.
    pub fn tenant(&self, tenant: &str, address: IpAddr, what: &str, detail: impl Into<String>) {
        let who = format!("tenant {tenant} at {address}");
        let counted = self.rates.lock().count(tenant, self.clock.now() / 60);
        let dropped = (counted.left_out > 0).then(|| {
            let detail = format!(
                "dropped {} entries, because they exceed {MAX_PER_MINUTE} per minute",
                counted.left_out
            );
            (LEFT_OUT, detail)
        });
        let action = match counted.beyond {
            0 => Some((what, detail.into())),
            1 => Some((LEFT_OUT, format!("entries exceed {MAX_PER_MINUTE} per minute"))),
            _ => None,
        };
        for (what, detail) in dropped.into_iter().chain(action) {
            self.tenants.note(self.entry(&who, what, tenant, detail));
        }
    }

    /// Writes all waiting entries.
    ///
    /// # Errors
    /// Returns [`StateError`] if some entries could not be written within 5 seconds. They are included in the next write.
    pub async fn write(&self) -> Result<(), StateError> {
        let (admins, tenants) = join(self.write_ledger(&self.admins), self.write_ledger(&self.tenants)).await;
        admins.and(tenants)
    }

    /// Reads the last `limit` entries of all hosts, oldest first. If `tenant` is given, other tenants are
    /// filtered out. `memory` grows by the size of the entries.
    ///
    /// # Errors
    /// Returns [`AuditError::Memory`] if the memory cannot grow, and [`AuditError::State`] if the entries could not be
    /// read within 30 seconds.
    pub async fn last(
        &self,
        tenant: Option<&str>,
        limit: usize,
        memory: &mut Reserved,
    ) -> Result<Vec<AuditEntry>, AuditError> {
        // The entries of this host are still missing if this fails, but they are in the host's log.
        self.write().await.ok();
        let store = &self.store;
        let today = self.clock.today();
        let both = async {
            let mut entries = self.admins.last(store, today, tenant, limit, memory).await?;
            entries.extend(self.tenants.last(store, today, tenant, limit, memory).await?);
            Ok::<_, AuditError>(entries)
        };
        let mut entries = within(READ_TIMEOUT, both).await?;
        entries.sort_by_key(|entry| entry.at);
        Ok(entries.split_off(entries.len().saturating_sub(limit)))
    }

    async fn write_ledger(&self, ledger: &Ledger) -> Result<(), StateError> {
        let writing = ledger.write(&self.store, &self.run, |count| {
            let detail = format!("{count}, since the state could not be written");
            self.entry("host", LEFT_OUT, "", detail)
        });
        within(WRITE_TIMEOUT, writing).await
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
    pub async fn keep(&self, stop: CancellationToken) {
        let mut sweeps = [(ADMINS, DailySweep::default()), (TENANTS, DailySweep::default())];
        while timeout(WRITE, stop.cancelled()).await.is_err() {
            warn_of(self.write().await);
            for (folder, sweep) in &mut sweeps {
                if let Err(error) = sweep.run(*folder, &self.store, &self.clock).await {
                    let folder = folder.folder.name;
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
pub(crate) async fn copy(from: &Store, to: &Store) -> Result<(), StateError> {
    for folder in [ADMINS, TENANTS] {
        let there = folder.list(to, None, None).await?;
        let there: HashSet<String> = there.into_iter().map(|object| object.key).collect();
        for object in folder.list(from, None, None).await? {
            if !there.contains(&object.key) {
                copy_object(from, to, &object.key).await?;
            }
        }
    }
    Ok(())
}

fn warn_of(written: Result<(), StateError>) {
    if let Err(error) = written {
        let error = error.to_string();
        tracing::warn!(error, "cannot write audit entries to the state; retrying later");
    }
}
