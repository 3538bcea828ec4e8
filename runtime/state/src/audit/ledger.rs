use crate::daily::{AT_ONCE, DailyFolder};
use crate::day::Day;
use crate::error::{AuditError, StateError};
use crate::folder::create;
use frostline_batching::Reserved;
use frostline_objects::Store;
use frostline_wire::AuditEntry;
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use std::pin::pin;

/// Maximum number of entries waiting to be written, enough for some minutes during which the state cannot be
/// written.
pub(super) const WAITING: usize = 1024;

/// Number of days searched first, because most queries are about recent entries.
const RECENT_DAYS: u64 = 7;

/// Audit entries of admins or of tenants in the shared state. Each host run writes separate objects. An
/// object contains a few entries, formatted as JSON lines.
pub(super) struct Ledger {
    folder: DailyFolder,
    waiting: Mutex<Waiting>,
    /// The batch being written. The lock is held during the write, and a batch keeps its number until the
    /// write succeeds, so no entry is written twice.
    batch: tokio::sync::Mutex<Batch>,
}

#[derive(Default)]
struct Waiting {
    entries: Vec<AuditEntry>,
    /// Entries that were dropped because the queue was full.
    left_out: u64,
}

#[derive(Default)]
struct Batch {
    number: u64,
    entries: Vec<AuditEntry>,
}

impl Ledger {
    pub(super) fn new(folder: DailyFolder) -> Self {
        Self {
            folder,
            waiting: Mutex::default(),
            batch: tokio::sync::Mutex::default(),
        }
    }

    /// Queues an entry and writes it to the host's log.
    pub(super) fn note(&self, entry: AuditEntry) {
        let AuditEntry {
            who,
            what,
            tenant,
            detail,
            ..
        } = &entry;
        tracing::info!(who, what, tenant, detail, "audit");
        let mut waiting = self.waiting.lock();
        if waiting.entries.len() < WAITING {
            waiting.entries.push(entry);
        } else {
            waiting.left_out += 1;
        }
    }

    /// Writes all waiting entries. If entries were dropped, `left_out` creates an entry to report the number.
    ///
    /// # Errors
    /// Returns [`StateError`] if the store fails. Remaining entries are still queued.
    pub(super) async fn write(
        &self,
        store: &Store,
        run: &str,
        left_out: impl Fn(u64) -> AuditEntry,
    ) -> Result<(), StateError> {
        let mut batch = self.batch.lock().await;
        loop {
            if batch.entries.is_empty() {
                let waiting = std::mem::take(&mut *self.waiting.lock());
                batch.number += 1;
                batch.entries = waiting.entries;
                if waiting.left_out > 0 {
                    batch.entries.push(left_out(waiting.left_out));
                }
            }
            let Some(first) = batch.entries.first() else {
                return Ok(());
            };
            let key = self.folder.key(Day::at(first.at), run, batch.number);
            let mut lines = Vec::new();
            for entry in &batch.entries {
                serde_json::to_writer(&mut lines, entry).map_err(|error| StateError::broken(&key, error))?;
                lines.push(b'\n');
            }
            create(store, &key, lines.into()).await?;
            batch.entries.clear();
        }
    }

    /// Reads the last entries of `tenant`, or of all tenants if it is `None`, sorted by day. The result can exceed
    /// `limit`, because days are always read completely. `memory` grows by the size of the entries.
    ///
    /// # Errors
    /// Returns [`AuditError::State`] if the state cannot be read, and [`AuditError::Memory`] if the memory cannot grow.
    pub(super) async fn last(
        &self,
        store: &Store,
        today: Day,
        tenant: Option<&str>,
        limit: usize,
        memory: &mut Reserved,
    ) -> Result<Vec<AuditEntry>, AuditError> {
        let mut days: Vec<Vec<AuditEntry>> = Vec::new();
        let before = memory.bytes();
        for first in [Some(today.before(RECENT_DAYS)), None] {
            // All days are read again if the recent ones have too few entries. Shrinking cannot fail.
            days.clear();
            memory.resize(before).ok();
            let objects = self.folder.list(store, first, None).await?;
            let mut found = 0;
            for objects in objects.chunk_by(|one, other| one.day == other.day).rev() {
                let objects = stream::iter(objects.to_vec());
                let entries = objects.map(|object| async move { read(store, &object.key).await });
                let mut entries = pin!(entries.buffered(AT_ONCE));
                let mut of_day: Vec<AuditEntry> = Vec::new();
                while let Some(entries) = entries.try_next().await? {
                    let before = of_day.len();
                    let entries = entries.into_iter();
                    of_day.extend(entries.filter(|entry| tenant.is_none_or(|tenant| entry.tenant == tenant)));
                    let more = of_day.iter().skip(before).map(bytes_of).sum::<u64>();
                    memory.resize(memory.bytes() + more)?;
                }
                found += of_day.len();
                days.push(of_day);
                if found >= limit {
                    break;
                }
            }
            if found >= limit {
                break;
            }
        }
        Ok(days.into_iter().rev().flatten().collect())
    }
}

/// Returns the memory of an entry. Texts are rounded up by the allocator. The entry itself is in a list that
/// grows, and in a list that joins several days.
fn bytes_of(entry: &AuditEntry) -> u64 {
    let texts = [&entry.host, &entry.who, &entry.what, &entry.tenant, &entry.detail];
    let texts: usize = texts.iter().map(|text| text.len() + 32).sum();
    (texts + 3 * size_of::<AuditEntry>()) as u64
}

/// Reads the entries of an object, or none if the object was removed in the meantime.
async fn read(store: &Store, key: &str) -> Result<Vec<AuditEntry>, StateError> {
    let bytes = match store.read(key).await {
        Err(error) if error.is_not_found() => return Ok(Vec::new()),
        bytes => bytes?,
    };
    let lines = bytes.split(|byte| *byte == b'\n');
    Ok(lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect())
}
