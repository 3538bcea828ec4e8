//! Accounting: what each tenant used, by day, over all hosts of a state and over restarts. `docs/accounting.md`.

mod books;
mod stored;
#[cfg(test)]
mod tests;

pub(crate) use books::Usages;
pub(crate) use stored::copy as copy_usage;

use crate::service::Service;
use crate::state::{Day, StateError};
use books::Books;
use frostline_objects::Store;
use frostline_profile::now;
use frostline_wire::{DayUsage, Usage};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stored::StoredUsage;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// How often counters are read: a budget that is used up ends work that much later.
const READ: Duration = Duration::from_secs(2);

/// How often what was counted is written: a host that is killed loses that much, and a little for the time that writing takes.
const WRITE: Duration = Duration::from_secs(30);

/// How long writing may take, so that the next minute is counted also where the state hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Days that are kept: a year, and a month to close its books.
const KEPT: u64 = 400;

/// See the module.
pub(crate) struct Accounts {
    books: Mutex<Books>,
    store: Arc<Store>,
    stored: tokio::sync::Mutex<StoredUsage>,
}

impl Accounts {
    /// Accounts in the shared state `store`, of this `run` of a host.
    pub(crate) fn new(store: Arc<Store>, run: String) -> Self {
        Self {
            books: Mutex::default(),
            store,
            stored: tokio::sync::Mutex::new(StoredUsage::new(run)),
        }
    }

    /// What a tenant used today: of this host up to two seconds ago, of others up to a minute ago.
    pub(crate) fn today_of(&self, tenant: &str) -> Usage {
        self.books.lock().on(Day::at(now()), tenant)
    }

    /// What tenants used from one day to another, both included: as far as it is written.
    ///
    /// # Errors
    /// [`StateError`].
    pub(crate) async fn read(&self, from: Day, to: Day) -> Result<Vec<DayUsage>, StateError> {
        let days = stored::read(&self.store, from, to, None).await?;
        let rows = days.into_iter().flat_map(|(day, tenants)| {
            tenants.into_iter().map(move |(tenant, usage)| DayUsage {
                day: day.to_string(),
                tenant,
                usage,
            })
        });
        Ok(rows.collect())
    }

    /// Counts what the counters gained. They are read in turns: an older reading would look like counters that began anew.
    fn count(&self, day: Day, counters: impl FnOnce() -> Usages) {
        let mut books = self.books.lock();
        books.count(day, counters());
    }

    /// Writes what was counted, and reads what other hosts counted on `day`.
    ///
    /// # Errors
    /// Why it could not be written in time; it is written the next time.
    async fn write(&self, day: Day) -> Result<(), String> {
        let mut left = self.books.lock().take_changed();
        let writing = async {
            let mut stored = self.stored.lock().await;
            while let Some((day, usages)) = left.first_key_value() {
                stored.write(&self.store, *day, usages.clone()).await?;
                left.pop_first();
            }
            let others = stored.others(&self.store, day).await?;
            self.books.lock().set_others(day, others);
            Ok::<_, StateError>(())
        };
        let written = timeout(PATIENCE, writing).await;
        let mut books = self.books.lock();
        books.return_changed(left.into_keys());
        books.forget_before(day);
        match written {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(_) => Err(format!(
                "the state did not answer within {} s",
                PATIENCE.as_secs()
            )),
        }
    }
}

/// Keeps the accounts of a host until `stop`, and then writes the last of it.
pub(crate) async fn account(service: Arc<Service>, stop: CancellationToken) {
    let accounts = &service.operations.accounts;
    let (mut written, mut swept, mut failing) = (Instant::now(), None, false);
    loop {
        let stopping = timeout(READ, stop.cancelled()).await.is_ok();
        let day = Day::at(now());
        accounts.count(day, || counters(&service));
        if written.elapsed() < WRITE && !stopping {
            continue;
        }
        written = Instant::now();
        match accounts.write(day).await {
            Err(error) if stopping => tracing::error!(
                error,
                "what tenants used last is lost: it could not be written to the state"
            ),
            Err(error) if !failing => {
                tracing::warn!(
                    error,
                    "cannot write what tenants used to the state; it is written later"
                );
                failing = true;
            }
            Ok(()) if failing => {
                tracing::info!("what tenants used is written to the state again");
                failing = false;
            }
            _ => {}
        }
        if stopping {
            return;
        }
        if swept != Some(day) && !failing {
            let sweeping = timeout(PATIENCE, stored::sweep(&accounts.store, day.before(KEPT))).await;
            if let Ok(Err(error)) = sweeping {
                tracing::warn!(%error, "cannot remove usage of more than {KEPT} days ago from the state");
            }
            swept = Some(day);
        }
    }
}

/// Writes what was counted until now.
///
/// # Errors
/// Why it could not be written in time.
pub(crate) async fn write_now(service: &Service) -> Result<(), String> {
    let (accounts, day) = (&service.operations.accounts, Day::at(now()));
    accounts.count(day, || counters(service));
    accounts.write(day).await
}

/// What each tenant used since the host was started, and what it stores.
fn counters(service: &Service) -> Usages {
    let (metrics, library) = (&service.operations.metrics.tenants, &service.library);
    let mut usages: Usages = metrics
        .names()
        .map(|name| (name.clone(), metrics.usage(&name)))
        .collect();
    for (tenant, time) in service.machine.lanes.stats().used {
        usages.entry(tenant).or_default().device_seconds = time.as_secs_f64();
    }
    for (tenant, bytes) in library.stored_bytes() {
        usages.entry(tenant).or_default().stored_bytes = bytes;
    }
    usages
}
