//! Who did what when: everything that admins do, and what tenants keep here, over all hosts of a state. It lies in the state, admins' acts
//! and tenants' apart, so that tenants push nothing out of what admins did; and each act is a line of the host's log.

mod ledger;
mod rates;
#[cfg(test)]
mod tests;

use crate::service::Service;
use crate::state::{DailyFolder, Day, StateError};
use frostline_objects::Store;
use frostline_profile::now;
use frostline_wire::AuditEntry;
use futures::future::join;
use ledger::Ledger;
use parking_lot::Mutex;
use rates::{A_MINUTE, Place, Rates};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const ADMINS: DailyFolder = DailyFolder("audit/admins");
const TENANTS: DailyFolder = DailyFolder("audit/tenants");

/// Days that admins' acts are kept: a year, and a month to look through it.
const ADMINS_KEPT: u64 = 400;

/// Days that tenants' acts are kept, of which there are many more.
const TENANTS_KEPT: u64 = 40;

/// How often tenants' acts are written, and those of admins that could not be written at once.
const WRITE: Duration = Duration::from_secs(30);

/// How long writing may take: so long an admin waits, and a host that stops.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long reading may take.
const READING: Duration = Duration::from_secs(30);

/// The longest detail; names and reasons are far shorter.
const DETAIL: usize = 1000;

/// What is written in place of acts that were not.
const LEFT_OUT: &str = "acts not written";

/// See the module.
pub(crate) struct Audit {
    store: Arc<Store>,
    run: String,
    /// This host's name.
    host: String,
    admins: Ledger,
    tenants: Ledger,
    rates: Mutex<Rates>,
}

impl Audit {
    /// In the shared state `store`, of this `run` of the host called `host`.
    pub(crate) fn new(store: Arc<Store>, run: String, host: String) -> Self {
        Self {
            store,
            run,
            host,
            admins: Ledger::new(ADMINS, ADMINS_KEPT),
            tenants: Ledger::new(TENANTS, TENANTS_KEPT),
            rates: Mutex::default(),
        }
    }

    /// Writes down what an admin did. Where the state does not take it in time, it is written later.
    pub(crate) async fn admin(&self, who: &str, what: &str, tenant: &str, detail: impl Into<String>) {
        let entry = self.entry(who, what, tenant, detail.into());
        self.admins.note(entry);
        warn_of(self.write_ledger(&self.admins).await);
    }

    /// Notes what a tenant did, of whose acts only so many a minute are kept, to be written within half a minute.
    pub(crate) fn tenant(&self, tenant: &str, address: IpAddr, what: &str, detail: impl Into<String>) {
        let who = format!("tenant {tenant} at {address}");
        let note = |what: &str, detail| self.tenants.note(self.entry(&who, what, tenant, detail));
        let counted = self.rates.lock().count(tenant, now() / 60);
        if counted.left_out > 0 {
            note(
                LEFT_OUT,
                format!("{} over the limit of {A_MINUTE} per minute", counted.left_out),
            );
        }
        match counted.place {
            Place::Within => note(what, detail.into()),
            Place::FirstBeyond => note(LEFT_OUT, format!("over the limit of {A_MINUTE} per minute")),
            Place::Beyond => {}
        }
    }

    /// Writes all that waits.
    ///
    /// # Errors
    /// Why not all of it was; it is written the next time.
    pub(crate) async fn write(&self) -> Result<(), String> {
        let (admins, tenants) = join(self.write_ledger(&self.admins), self.write_ledger(&self.tenants)).await;
        admins.and(tenants)
    }

    /// The last `limit` entries of all hosts, oldest first; only those of `tenant` where one is named.
    ///
    /// # Errors
    /// Why they could not be read in time.
    pub(crate) async fn last(&self, tenant: Option<&str>, limit: usize) -> Result<Vec<AuditEntry>, String> {
        // What cannot be written was said in the log.
        self.write().await.ok();
        let wanted = |entry: &AuditEntry| tenant.is_none_or(|tenant| entry.tenant == tenant);
        let (store, today) = (&self.store, Day::at(now()));
        let both = async {
            let mut entries = self.admins.last(store, today, limit, wanted).await?;
            entries.extend(self.tenants.last(store, today, limit, wanted).await?);
            Ok::<_, StateError>(entries)
        };
        let mut entries = timeout(READING, both)
            .await
            .map_err(|_| late(READING))?
            .map_err(|error| error.to_string())?;
        entries.sort_by_key(|entry| entry.at);
        Ok(entries.split_off(entries.len().saturating_sub(limit)))
    }

    async fn write_ledger(&self, ledger: &Ledger) -> Result<(), String> {
        let left_out = |count| {
            let detail = format!("{count}, since the state could not be written");
            self.entry("host", LEFT_OUT, "", detail)
        };
        let writing = ledger.write(&self.store, &self.run, left_out);
        let written = timeout(PATIENCE, writing).await.map_err(|_| late(PATIENCE))?;
        written.map_err(|error| error.to_string())
    }

    fn entry(&self, who: &str, what: &str, tenant: &str, mut detail: String) -> AuditEntry {
        detail.truncate(detail.floor_char_boundary(DETAIL));
        AuditEntry {
            at: now(),
            host: self.host.clone(),
            who: who.to_owned(),
            what: what.to_owned(),
            tenant: tenant.to_owned(),
            detail,
        }
    }
}

/// Copies what is not there, for backups of a state, and to restore one.
///
/// # Errors
/// [`StateError`].
pub(crate) async fn copy_audit(from: &Store, to: &Store) -> Result<(), StateError> {
    for folder in [ADMINS, TENANTS] {
        let there = folder.keys(to, None, |_| true).await?;
        for key in folder.keys(from, None, |_| true).await? {
            if there.binary_search(&key).is_ok() {
                continue;
            }
            match from.read(&key).await {
                // A host removed it meanwhile, since it was too old.
                Err(error) if error.is_not_found() => {}
                bytes => to.put_same(&key, bytes?).await?,
            }
        }
    }
    Ok(())
}

/// Writes what waits until `stop`, and removes what is too old.
pub(crate) async fn keep_audit(service: Arc<Service>, stop: CancellationToken) {
    let (audit, mut swept) = (&service.operations.audit, None);
    while timeout(WRITE, stop.cancelled()).await.is_err() {
        warn_of(audit.write().await);
        let day = Day::at(now());
        if swept == Some(day) {
            continue;
        }
        swept = Some(day);
        for ledger in [&audit.admins, &audit.tenants] {
            let sweeping = timeout(READING, ledger.sweep(&audit.store, day)).await;
            if let Ok(Err(error)) = sweeping {
                let folder = ledger.folder().0;
                tracing::warn!(%error, folder, "cannot remove old entries of the audit from the state");
            }
        }
    }
}

fn warn_of(written: Result<(), String>) {
    if let Err(error) = written {
        tracing::warn!(error, "cannot write the audit to the state; it is written later");
    }
}

fn late(patience: Duration) -> String {
    format!("the state did not answer within {} s", patience.as_secs())
}
