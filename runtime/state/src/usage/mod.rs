//! Accounting: usage by tenant and day, across all hosts of a state and across restarts.

mod books;
mod stored;
#[cfg(test)]
mod tests;

pub(crate) use stored::copy;

use crate::clock::Clock;
use crate::daily::DailySweep;
use crate::day::Day;
use crate::error::StateError;
use crate::folder::within;
use books::{Books, Usages};
use frostline_objects::Store;
use frostline_wire::{DayUsage, Usage};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stored::{FOLDER, StoredUsage};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Interval at which counters are read. A tenant can exceed the budget of device time by the work of this time.
const COUNT_INTERVAL: Duration = Duration::from_secs(2);

/// Interval at which usage is written. If a host is killed, the usage of this interval is lost, plus the
/// usage during a write.
const WRITE: Duration = Duration::from_secs(30);

/// Timeout of a write. Counting must continue even if the store hangs.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// Daily usage of tenants, counted by this host and by the other hosts of a state. Counters are read every two seconds and
/// written every 30 seconds.
pub struct Accounts {
    books: Mutex<Books>,
    store: Arc<Store>,
    clock: Arc<Clock>,
    stored: tokio::sync::Mutex<StoredUsage>,
}

impl Accounts {
    /// Creates the accounts of a host. They are stored in `store` under the random id `run` of this host
    /// process.
    pub fn new(store: Arc<Store>, run: String, clock: Arc<Clock>) -> Self {
        Self {
            books: Mutex::default(),
            store,
            clock,
            stored: tokio::sync::Mutex::new(StoredUsage::new(run)),
        }
    }

    /// Returns the usage of a tenant today: up to now for the counters in `live`, which are those of this host,
    /// up to two seconds ago for its device time, and up to a minute ago for other hosts.
    pub fn today_of(&self, tenant: &str, live: impl FnOnce() -> Usage) -> Usage {
        // The counters are read while the lock is held, as in `count`.
        let books = self.books.lock();
        books.usage_on(self.clock.today(), tenant, &live())
    }

    /// Reads the stored usage of all tenants from the day `from` to the day `to`, both included.
    ///
    /// # Errors
    /// Returns [`StateError`] if the state cannot be read.
    pub async fn read(&self, from: Day, to: Day) -> Result<Vec<DayUsage>, StateError> {
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

    /// Adds the increase of the counters of all tenants, which start at zero when the host starts. They are read while
    /// the lock is held, because an older reading after a newer one would look like counters that were reset.
    fn count(&self, counters: impl FnOnce() -> Usages) {
        let mut books = self.books.lock();
        books.count(self.clock.today(), counters());
    }

    /// Adds the increase of the counters and writes the usage of this host.
    ///
    /// # Errors
    /// Returns [`StateError`] if the usage could not be written within 20 seconds. It is included in the next write.
    pub async fn write_now(
        &self,
        counters: impl FnOnce() -> BTreeMap<String, Usage>,
    ) -> Result<(), StateError> {
        self.count(counters);
        self.write().await
    }

    /// Writes the usage of this host, and reads that of other hosts on the current day.
    async fn write(&self) -> Result<(), StateError> {
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
        let written = within(WRITE_TIMEOUT, writing).await;
        let mut books = self.books.lock();
        books.return_changed(left.into_keys());
        books.forget_written();
        written
    }

    /// Counts and writes usage until `stop` is cancelled, and then writes it for the last time. `counters` returns the
    /// counters of all tenants, which start at zero when the host starts.
    pub async fn keep(&self, counters: impl Fn() -> BTreeMap<String, Usage>, stop: CancellationToken) {
        let mut written = Instant::now();
        let mut sweep = DailySweep::default();
        let mut failing = false;
        loop {
            let stopping = timeout(COUNT_INTERVAL, stop.cancelled()).await.is_ok();
            self.count(&counters);
            if written.elapsed() < WRITE && !stopping {
                continue;
            }
            written = Instant::now();
            match self.write().await.map_err(|error| error.to_string()) {
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
            if failing {
                continue;
            }
            if let Err(error) = sweep.run(FOLDER, &self.store, &self.clock).await {
                let days = FOLDER.kept_days;
                tracing::warn!(%error, "cannot remove usage older than {days} days from the state");
            }
        }
    }
}
