//! Accounting: usage by tenant and day, across all hosts of a state and across restarts. See
//! `docs/accounting.md`.

mod books;
mod stored;
#[cfg(test)]
mod tests;

pub(crate) use books::Usages;
pub(crate) use stored::copy as copy_usage;

use crate::clock::Clock;
use crate::service::Service;
use crate::state::{Day, StateError};
use books::Books;
use frostline_objects::Store;
use frostline_wire::{DayUsage, Usage};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stored::StoredUsage;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Interval at which counters are read. A tenant can exceed the budget of device time by the work of this time.
const COUNT_INTERVAL: Duration = Duration::from_secs(2);

/// Interval at which usage is written. If a host is killed, the usage of this interval is lost, plus the
/// usage during a write.
const WRITE: Duration = Duration::from_secs(30);

/// Timeout of a write. Counting must continue even if the store hangs.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// Days with usage that are kept: a year, plus a month to close the books.
const RETENTION_DAYS: usize = 400;

/// See the module documentation.
pub(crate) struct Accounts {
    books: Mutex<Books>,
    store: Arc<Store>,
    clock: Arc<Clock>,
    stored: tokio::sync::Mutex<StoredUsage>,
}

impl Accounts {
    /// Creates the accounts of a host. They are stored in `store` under the random id `run` of this host
    /// process.
    pub(crate) fn new(store: Arc<Store>, run: String, clock: Arc<Clock>) -> Self {
        Self {
            books: Mutex::default(),
            store,
            clock,
            stored: tokio::sync::Mutex::new(StoredUsage::new(run)),
        }
    }

    /// Returns the usage of a tenant today: up to now for the counters in `live`, which are those of this host,
    /// up to two seconds ago for its device time, and up to a minute ago for other hosts. The counters are read
    /// while the lock is held, as in [`count`](Self::count).
    pub(crate) fn today_of(&self, tenant: &str, live: impl FnOnce() -> Usage) -> Usage {
        let books = self.books.lock();
        books.usage_on(self.today(), tenant, &live())
    }

    /// Reads the stored usage of all tenants from the day `from` to the day `to`, both included.
    ///
    /// # Errors
    /// Returns [`StateError`] if the state cannot be read.
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

    /// Adds the increase of the counters. They are read while the lock is held, because an older reading
    /// after a newer one would look like counters that were reset.
    fn count(&self, counters: impl FnOnce() -> Usages) {
        let mut books = self.books.lock();
        books.count(self.today(), counters());
    }

    fn today(&self) -> Day {
        Day::at(self.clock.now())
    }

    /// Writes the usage of this host, and reads that of other hosts on the current day.
    ///
    /// # Errors
    /// Returns the reason if the usage could not be written in time. It is then included in the next write.
    async fn write(&self) -> Result<(), String> {
        let mut left = self.books.lock().take_changed();
        let current = self.books.lock().current();
        let writing = async {
            let mut stored = self.stored.lock().await;
            while let Some((period, usages)) = left.first_key_value() {
                stored.write(&self.store, *period, usages.clone()).await?;
                left.pop_first();
            }
            if let Some(period) = current {
                let others = stored.others(&self.store, period).await?;
                self.books.lock().set_others(period.day, others);
            }
            Ok::<_, StateError>(())
        };
        let written = timeout(WRITE_TIMEOUT, writing).await;
        let mut books = self.books.lock();
        books.return_changed(left.into_keys());
        books.forget_written();
        let seconds = WRITE_TIMEOUT.as_secs();
        let written = written.map_err(|_| format!("the state did not answer within {seconds} s"))?;
        written.map_err(|error| error.to_string())
    }
}

/// Keeps the accounts of a host until `stop` is cancelled, and then writes them for the last time.
pub(crate) async fn account(service: Arc<Service>, stop: CancellationToken) {
    let accounts = &service.operations.accounts;
    let mut written = Instant::now();
    let mut swept = None;
    let mut failing = false;
    loop {
        let stopping = timeout(COUNT_INTERVAL, stop.cancelled()).await.is_ok();
        accounts.count(|| counters(&service));
        if written.elapsed() < WRITE && !stopping {
            continue;
        }
        written = Instant::now();
        match accounts.write().await {
            Err(error) if stopping => tracing::error!(
                error,
                "the most recent usage of tenants is lost because it could not be written to the state"
            ),
            Err(error) if !failing => {
                tracing::warn!(error, "cannot write usage to the state; retrying later");
                failing = true;
            }
            Ok(()) if failing => {
                tracing::info!("usage is written to the state again");
                failing = false;
            }
            _ => {}
        }
        if stopping {
            return;
        }
        let day = accounts.today();
        if swept != Some(day) && !failing && accounts.clock.may_expire() {
            let sweeping = stored::FOLDER.sweep(&accounts.store, RETENTION_DAYS);
            let sweeping = timeout(WRITE_TIMEOUT, sweeping).await;
            if let Ok(Err(error)) = sweeping {
                tracing::warn!(%error, "cannot remove usage older than {RETENTION_DAYS} days from the state");
            }
            swept = Some(day);
        }
    }
}

/// Writes the current usage of this host.
///
/// # Errors
/// Returns the reason if the usage could not be written in time.
pub(crate) async fn write_now(service: &Service) -> Result<(), String> {
    let accounts = &service.operations.accounts;
    accounts.count(|| counters(service));
    accounts.write().await
}

/// Reads the counters of all tenants, which start when the host starts, and the size of stored uploads.
fn counters(service: &Service) -> Usages {
    let metrics = &service.operations.metrics.tenants;
    let library = &service.library;
    let mut usages: Usages = metrics
        .names()
        .map(|name| (name.clone(), metrics.usage(&name)))
        .collect();
    for (tenant, time) in service.machine.lanes.stats().device_time {
        usages.entry(tenant).or_default().device_seconds = time.as_secs_f64();
    }
    for (tenant, bytes) in library.stored_bytes() {
        usages.entry(tenant).or_default().stored_bytes = bytes;
    }
    usages
}
