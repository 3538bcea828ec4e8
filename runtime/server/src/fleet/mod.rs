//! The hosts that share a state. Each host writes a record with its activity and clock to the state, reads those of
//! other hosts, and follows the orders of admins. See `docs/state.md`.

mod activity;
mod cancellations;
mod jobs;
#[cfg(test)]
mod tests;
mod upkeep;

pub(crate) use activity::activity;
pub(crate) use cancellations::Cancellations;
pub(crate) use jobs::{detail, find, merged};
pub(crate) use upkeep::{keep_fleet, settle_revocations};

use crate::scheduling::Scheduling;
use frostline_objects::{ClockReading, Store};
use frostline_state::{Clock, Documents, DrainOrder, HostKey, HostRecord, StateError};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Time after which a host without a new record may not follow the state anymore. Records are written every ten
/// seconds.
const SILENT: u64 = 30;

/// Time after which an unchanged record is removed. This does no harm to a live host, which writes another record.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// Maximum time that a view waits for the records of other hosts. It then shows the known ones.
const VIEW_TIMEOUT: Duration = Duration::from_secs(3);

/// Number of records read concurrently.
const AT_ONCE: usize = 8;

/// Numbers of jobs, tenants and failing roots in a record, which limit its size.
const JOBS: usize = 64;
const TENANTS: usize = 64;
const ROOTS: usize = 8;

/// Estimated size of a record in bytes, with 500 bytes per job and tenant.
const RECORD_BYTES: u64 = 64 << 10;

/// See the module documentation.
pub(crate) struct Fleet {
    store: Arc<Store>,
    clock: Arc<Clock>,
    /// Random id of this host process.
    run: String,
    /// URL for tenants. Known once the host listens.
    address: OnceLock<String>,
    pub(crate) cancellations: Cancellations,
    drains: Documents<DrainOrder>,
    /// The order that this host followed last.
    followed: Mutex<Option<Arc<DrainOrder>>>,
    /// Key of this host's record. The lock is held during a write.
    own: tokio::sync::Mutex<Option<HostKey>>,
    others: tokio::sync::Mutex<Others>,
}

/// Other hosts by run.
#[derive(Default)]
struct Others {
    hosts: BTreeMap<String, OtherHost>,
    /// Start of the latest listing.
    listed: Option<Instant>,
}

struct OtherHost {
    key: HostKey,
    /// When this host noticed the record.
    since: Instant,
    /// The clock in the record. `None` if the age of the record is unknown.
    clock: Option<ClockReading>,
    /// Content of this record or of an earlier one, with the number.
    content: Option<(u64, Arc<HostRecord>)>,
}

impl Fleet {
    pub(crate) fn new(
        store: Arc<Store>,
        clock: Arc<Clock>,
        run: String,
        cancellations: Cancellations,
        drains: Documents<DrainOrder>,
    ) -> Self {
        Self {
            store,
            clock,
            run,
            address: OnceLock::new(),
            cancellations,
            drains,
            followed: Mutex::default(),
            own: Default::default(),
            others: Default::default(),
        }
    }

    /// Returns the records of all hosts, starting with `own`. If the state does not answer in time, the known records
    /// of other hosts are returned.
    pub(crate) async fn records(&self, own: HostRecord) -> Vec<HostRecord> {
        let reading = async {
            self.list().await?;
            self.read(|host| {
                host.content
                    .as_ref()
                    .is_none_or(|(number, _)| *number != host.key.number)
            })
            .await
        };
        match timeout(VIEW_TIMEOUT, reading).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot read the records of other hosts"),
            Err(_) => {
                tracing::warn!("the state does not answer; showing the last known records of other hosts")
            }
        }
        let mut all = vec![own];
        all.extend(
            self.others
                .lock()
                .await
                .hosts
                .values()
                .filter_map(OtherHost::record),
        );
        all
    }

    /// Returns an upper limit for the memory of [`records`](Self::records).
    pub(crate) async fn records_bytes(&self) -> u64 {
        (self.others.lock().await.hosts.len() as u64 + 1).saturating_mul(RECORD_BYTES)
    }

    /// Returns the names of all other hosts, or only of hosts that were silent for [`SILENT`] seconds.
    pub(crate) async fn other_names(&self, only_silent: bool) -> Vec<String> {
        let others = self.others.lock().await;
        let records = others.hosts.values().filter_map(OtherHost::record);
        let named = records.filter(|record| !only_silent || record.host.silent_seconds > SILENT);
        let names: BTreeSet<String> = named.map(|record| record.host.name).collect();
        names.into_iter().collect()
    }

    /// Orders the host processes `runs` of the host `name` to drain, or to accept work again.
    ///
    /// # Errors
    /// Returns [`StateError`] if the state cannot be written.
    pub(crate) async fn order(
        &self,
        name: &str,
        runs: BTreeSet<String>,
        drained: bool,
    ) -> Result<(), StateError> {
        let order = DrainOrder::new(runs, drained)?;
        self.drains
            .update(name, |_| Ok::<_, StateError>(Some(order.clone())))
            .await
            .map(drop)
    }

    /// Follows the latest order to this host, unless it did before.
    pub(crate) fn follow_order(&self, name: &str, scheduling: &Scheduling) {
        let order = self
            .drains
            .get(name)
            .filter(|order| order.runs.contains(&self.run));
        let mut followed = self.followed.lock();
        if order == *followed {
            return;
        }
        match order.as_ref().map(|order| order.drained) {
            Some(true) => scheduling.drain(),
            Some(false) => scheduling.undrain(),
            None => {}
        }
        *followed = order;
    }

    /// Writes a record of this host, which replaces the previous one.
    async fn write(&self, mut record: HostRecord) -> Result<(), StateError> {
        record.jobs.truncate(JOBS);
        let activity = &mut record.host.activity;
        activity.failing_roots.truncate(ROOTS);
        activity
            .tenants
            .sort_by_key(|tenant| std::cmp::Reverse((tenant.running + tenant.queued, tenant.samples)));
        activity.tenants.truncate(TENANTS);
        let mut own = self.own.lock().await;
        let key = HostKey {
            run: self.run.clone(),
            number: own.as_ref().map_or(0, |own| own.number + 1),
            clock: self.clock.local(),
        };
        // If the response is lost, the next record needs another number.
        let before = own.replace(key.clone());
        key.write(&self.store, &record).await?;
        if let Some(before) = before {
            before.remove(&self.store).await;
        }
        Ok(())
    }

    /// Removes the record of this host, which stops.
    async fn leave(&self) {
        if let Some(own) = self.own.lock().await.take() {
            own.remove(&self.store).await;
        }
    }

    /// Lists the records of other hosts, and compares the clocks.
    ///
    /// # Errors
    /// Returns [`StateError`] if the state cannot be read.
    pub(crate) async fn list(&self) -> Result<(), StateError> {
        let mut others = self.others.lock().await;
        let began = Instant::now();
        let listed = HostKey::list(&self.store).await?;
        let before = others.listed.replace(began);
        let mut known = std::mem::take(&mut others.hosts);
        // A killed host leaves up to two records. The later one counts.
        let latest: BTreeMap<String, HostKey> =
            listed.into_iter().map(|key| (key.run.clone(), key)).collect();
        for key in latest.into_values().filter(|key| key.run != self.run) {
            let host = match known.remove(&key.run) {
                Some(host) if host.key.number >= key.number => OtherHost { key, ..host },
                host => OtherHost {
                    clock: self.read_clock(&key, before),
                    since: Instant::now(),
                    content: host.and_then(|host| host.content),
                    key,
                },
            };
            others.hosts.insert(host.key.run.clone(), host);
        }
        let clocks = others.hosts.values().filter_map(|host| host.clock);
        self.clock.set_hosts(clocks.collect());
        Ok(())
    }

    /// Reads the clock in a new record, which was written after the listing at `before`.
    fn read_clock(&self, key: &HostKey, before: Option<Instant>) -> Option<ClockReading> {
        let latest = Instant::now();
        match before {
            Some(earliest) => Some(ClockReading {
                seconds: key.clock,
                earliest,
                latest,
            }),
            None => self.clock.read_recent(key.clock, latest),
        }
    }

    /// Reads the records of the hosts selected by `which`.
    async fn read(&self, which: impl Fn(&OtherHost) -> bool) -> Result<(), StateError> {
        let others = self.others.lock().await;
        let selected = others.hosts.values().filter(|host| which(host));
        let keys: Vec<HostKey> = selected.map(|host| host.key.clone()).collect();
        drop(others);
        let read = stream::iter(keys).map(|key| async move { (key.read(&self.store).await, key) });
        let mut read = read.buffer_unordered(AT_ONCE);
        while let Some((record, key)) = read.next().await {
            let record = match record {
                // The host has replaced or removed it.
                Err(error) if error.is_not_found() => continue,
                record => record?,
            };
            if let Some(host) = self.others.lock().await.hosts.get_mut(&key.run) {
                host.content = Some((key.number, Arc::new(record)));
            }
        }
        Ok(())
    }

    /// Removes records that do not change, and orders to hosts that no longer run.
    async fn clean(&self) -> Result<(), StateError> {
        let orders = self.drains.list("");
        self.list().await?;
        let others = self.others.lock().await;
        let dead = others
            .hosts
            .values()
            .filter(|host| host.since.elapsed() > FORGOTTEN);
        let dead: Vec<HostKey> = dead.map(|host| host.key.clone()).collect();
        let runs: BTreeSet<String> = others.hosts.keys().cloned().collect();
        drop(others);
        for key in dead {
            key.remove(&self.store).await;
        }
        for (name, order) in orders {
            if !order.runs.contains(&self.run) && order.runs.is_disjoint(&runs) {
                self.drains.update(&name, |_| Ok::<_, StateError>(None)).await?;
            }
        }
        Ok(())
    }
}

impl OtherHost {
    fn record(&self) -> Option<HostRecord> {
        let (_, content) = self.content.as_ref()?;
        let mut record = HostRecord::clone(content);
        record.host.silent_seconds = self.since.elapsed().as_secs();
        Some(record)
    }
}
