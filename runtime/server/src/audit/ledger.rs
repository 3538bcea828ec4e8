use crate::state::{DailyFolder, Day, StateError};
use frostline_objects::Store;
use frostline_wire::AuditEntry;
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

/// Entries that wait to be written: of minutes in which the state cannot be written.
pub(super) const WAITING: usize = 1024;

/// Objects read at once.
const AT_ONCE: usize = 8;

/// Days that are looked through first: most who ask want to know what was done lately.
const LATELY: u64 = 7;

/// Entries of one kind in the shared state: of each run of a host, objects with a few entries each, a line of JSON an entry.
pub(super) struct Ledger {
    folder: DailyFolder,
    kept_days: u64,
    waiting: Mutex<Waiting>,
    /// Held while it is written. A batch keeps its number until it is known to be there, so that it is there once.
    batch: tokio::sync::Mutex<Batch>,
}

#[derive(Default)]
struct Waiting {
    entries: Vec<AuditEntry>,
    /// That found no room.
    left_out: u64,
}

#[derive(Default)]
struct Batch {
    number: u64,
    entries: Vec<AuditEntry>,
}

impl Ledger {
    pub(super) fn new(folder: DailyFolder, kept_days: u64) -> Self {
        Self {
            folder,
            kept_days,
            waiting: Mutex::default(),
            batch: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn folder(&self) -> DailyFolder {
        self.folder
    }

    /// Has an entry wait to be written, and writes it to the log.
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

    /// Writes all that waits. `left_out` makes the entry that stands for those that found no room.
    ///
    /// # Errors
    /// [`StateError`]; what was not written still waits.
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
            let (day, mut lines) = (Day::at(first.at), Vec::new());
            for entry in &batch.entries {
                serde_json::to_writer(&mut lines, entry)
                    .map_err(|error| StateError::broken(self.folder.0, error))?;
                lines.push(b'\n');
            }
            self.folder.write(store, day, run, batch.number, lines).await?;
            batch.entries.clear();
        }
    }

    /// The last `limit` entries that are `wanted`, or a few more, by day.
    ///
    /// # Errors
    /// [`StateError`].
    pub(super) async fn last(
        &self,
        store: &Store,
        today: Day,
        limit: usize,
        wanted: impl Fn(&AuditEntry) -> bool,
    ) -> Result<Vec<AuditEntry>, StateError> {
        let mut days = Vec::new();
        for first in [LATELY, self.kept_days] {
            let keys = self
                .folder
                .keys(store, Some(today.before(first)), |_| true)
                .await?;
            let day = |key: &String| self.folder.parse(key).map(|name| name.day);
            let (mut entries, mut found) = (Vec::new(), 0);
            for keys in keys.chunk_by(|one, other| day(one) == day(other)).rev() {
                let read = stream::iter(keys.to_vec()).map(|key| async move { read(store, &key).await });
                let read = read.buffered(AT_ONCE);
                let mut of_day: Vec<AuditEntry> = read.try_concat().await?;
                of_day.retain(&wanted);
                found += of_day.len();
                entries.push(of_day);
                if found >= limit {
                    break;
                }
            }
            days = entries;
            if found >= limit {
                break;
            }
        }
        Ok(days.into_iter().rev().flatten().collect())
    }

    /// Removes what is no longer kept.
    ///
    /// # Errors
    /// [`StateError`].
    pub(super) async fn sweep(&self, store: &Store, today: Day) -> Result<(), StateError> {
        self.folder.sweep(store, today.before(self.kept_days)).await
    }
}

/// Entries of one object; none of one that was removed meanwhile.
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
