//! A host's view of the shared state: the current documents and the position in the log.
//!
//! Changes of other hosts are read and applied in the order of the log. This host appends a change only after
//! applying all previous changes.

use crate::error::StateError;
use crate::log::{self, Change, EPOCH, Position, unsure};
use crate::record::FORMAT;
use crate::record::unique_id;
use crate::snapshot::{self, Document};
use crate::tail::{LogTail, TENANT_BYTES};
use frostline_objects::Store;
use futures::{StreamExt, stream};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;

/// Maximum number of changes read concurrently. If a store answers in 30 ms, a hundred changes can be read
/// within a quarter of a second.
const READ_AT_ONCE: u64 = 64;

/// A snapshot is due after 500 changes, or after one change per 16 documents if that is more. The cost of
/// writing snapshots stays proportional to the number of changes, and the number of changes to read at
/// startup is proportional to the number of documents. It is also due after [`TENANT_BYTES`], so that a tenant at
/// this limit can continue.
const CHANGES_A_SNAPSHOT: u64 = 500;
const DOCUMENTS_A_CHANGE: u64 = 16;

/// Timeout for the lock to append a change. An append takes about a tenth of a second, or a minute if the
/// store stalls.
const APPEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Warning about records in [`Journal::unread`].
const UNREAD: &str = "ignoring a record of the host's state written by a newer version of frostline; upgrade this host to use it";

/// Attempts to read a snapshot. An attempt only fails if a newer snapshot was written in the meantime.
const TRIES: usize = 8;

/// The journal's interface to all documents with the same kind.
pub(crate) trait DocumentKind: Send + Sync {
    /// Returns `guests`, `models` or `tenants`.
    fn kind(&self) -> &'static str;

    /// Returns the number of documents.
    fn count(&self) -> usize;

    /// Sets or deletes the document with this name.
    fn set(&self, name: &str, content: Option<&RawValue>) -> Result<(), serde_json::Error>;

    /// Replaces all documents. Returns the given documents that are invalid.
    fn replace(&self, documents: Vec<Document>) -> Vec<Document>;

    /// Returns a function that serializes the current documents.
    fn dump(&self) -> Dump;
}

/// Serializes documents.
pub(crate) type Dump = Box<dyn FnOnce() -> Result<Vec<Document>, serde_json::Error> + Send>;

/// The log of a state as this host has applied it. Keeps the documents of this host up to date.
pub struct Journal {
    store: Arc<Store>,
    kinds: Vec<Arc<dyn DocumentKind>>,
    /// Unreadable records by kind and name, written by a newer version. They are neither served nor changed,
    /// but included in snapshots.
    unread: parking_lot::Mutex<BTreeMap<(String, String), Document>>,
    /// Position after all applied changes. The lock is held while changes are read and applied.
    position: Mutex<Position>,
    /// Held while appending a change to avoid conflicts on the same host.
    adding: Mutex<()>,
    /// Number of the newest known snapshot.
    snapshot: AtomicU64,
    tail: parking_lot::Mutex<LogTail>,
    /// When the last complete read of the log started.
    read: parking_lot::Mutex<Instant>,
}

impl Journal {
    /// Loads the newest snapshot and the changes after it.
    pub(crate) async fn open(
        store: Arc<Store>,
        kinds: Vec<Arc<dyn DocumentKind>>,
    ) -> Result<Self, StateError> {
        let journal = Self {
            store,
            kinds,
            unread: parking_lot::Mutex::default(),
            position: Mutex::default(),
            adding: Mutex::default(),
            snapshot: AtomicU64::new(0),
            tail: parking_lot::Mutex::default(),
            read: parking_lot::Mutex::new(Instant::now()),
        };
        journal.reload().await?;
        Ok(journal)
    }

    /// Returns the time since the log was last read to the end.
    pub fn age(&self) -> Duration {
        self.read.lock().elapsed()
    }

    /// Returns the number of the last applied change.
    pub async fn last_change(&self) -> u64 {
        self.position.lock().await.number
    }

    /// Returns the number of documents.
    pub(crate) fn count(&self) -> usize {
        self.kinds.iter().map(|kind| kind.count()).sum()
    }

    /// Reads all changes made before this call. Concurrent callers share a single read.
    ///
    /// # Errors
    /// Returns [`StateError`] if the state cannot be read.
    pub async fn catch_up(&self) -> Result<(), StateError> {
        let asked = Instant::now();
        let mut position = self.position.lock().await;
        if *self.read.lock() >= asked {
            return Ok(());
        }
        self.read_to_end(&mut position).await
    }

    /// Like [`catch_up`](Self::catch_up), but also detects that this host is too far behind to read the next
    /// change, or that the state was replaced. It then reloads the newest snapshot.
    pub(crate) async fn review(&self) -> Result<(), StateError> {
        let mut position = self.position.lock().await;
        let newer = snapshot::newest(&self.store, Some(position.number)).await?;
        if newer.is_none() && !self.contains(&position).await? {
            tracing::warn!("the host's state was replaced by an older copy; reloading");
            self.load(&mut position).await?;
        } else if newer.is_some() {
            self.load(&mut position).await?;
        }
        self.read_to_end(&mut position).await
    }

    /// Waits for the lock to append a change.
    ///
    /// # Errors
    /// Returns [`StateError::Contended`] if the lock is not available in time.
    pub(crate) async fn adding(
        &self,
        kind: &'static str,
        name: &str,
    ) -> Result<MutexGuard<'_, ()>, StateError> {
        let turn = tokio::time::timeout(APPEND_TIMEOUT, self.adding.lock()).await;
        turn.map_err(|_| StateError::Contended {
            kind,
            name: name.to_owned(),
        })
    }

    /// Calls `read` and returns the result, together with the last applied change.
    pub(crate) async fn read_at_position<T>(&self, read: impl FnOnce() -> T) -> (Position, T) {
        let position = self.position.lock().await;
        (position.clone(), read())
    }

    /// Appends and applies a change that follows `before`. Returns false if another change was appended
    /// first; it has then been applied.
    pub(crate) async fn add(
        &self,
        before: &Position,
        kind: &str,
        name: &str,
        content: Option<Box<RawValue>>,
    ) -> Result<bool, StateError> {
        let change = Change {
            format: FORMAT,
            mark: unique_id()?,
            kind: kind.to_owned(),
            name: name.to_owned(),
            content,
        };
        let number = before.number + 1;
        if !log::create(&self.store, number, &change).await? {
            self.catch_up().await?;
            return Ok(false);
        }
        if !self.follows(before).await? {
            log::remove(&self.store, number).await?;
            self.reload().await?;
            return Ok(false);
        }
        let mut position = self.position.lock().await;
        // Another task may have read and applied the change already.
        if position.number < number {
            let mark = change.mark.clone();
            self.apply(number, change);
            *position = Position { number, mark };
        }
        Ok(true)
    }

    /// Checks that the change after `before` was created at the end of the log. If this host was suspended
    /// for days, the changes at this position might have been removed as outdated, and creating one there has
    /// no effect.
    async fn follows(&self, before: &Position) -> Result<bool, StateError> {
        self.contains(before).await.map_err(unsure)
    }

    /// Checks that the state still contains this change, or starts with it.
    async fn contains(&self, position: &Position) -> Result<bool, StateError> {
        match position.number {
            0 => snapshot::is_first(&self.store, &position.mark).await,
            _ => log::holds(&self.store, position).await,
        }
    }

    /// Reads changes up to the end of the log. Starts with a single read and then doubles the number of
    /// concurrent reads.
    async fn read_to_end(&self, position: &mut Position) -> Result<(), StateError> {
        let mut at_once = 1;
        let mut began = Instant::now();
        loop {
            let first = position.number + 1;
            let numbers = first..first + at_once;
            let mut changes = stream::iter(numbers)
                .map(|number| async move { (number, log::read(&self.store, number).await) })
                .buffered(READ_AT_ONCE as usize);
            while let Some((number, change)) = changes.next().await {
                let Some(change) = change? else {
                    *self.read.lock() = began;
                    return Ok(());
                };
                let mark = change.mark.clone();
                self.apply(number, change);
                *position = Position { number, mark };
            }
            drop(changes);
            (at_once, began) = ((at_once * 2).min(READ_AT_ONCE), Instant::now());
        }
    }

    fn apply(&self, number: u64, change: Change) {
        let Change {
            format,
            kind,
            name,
            content,
            ..
        } = change;
        let bytes = content.as_ref().map_or(0, |content| content.get().len());
        self.tail.lock().add(number, &name, bytes);
        if kind.is_empty() {
            return;
        }
        let mut unread = self.unread.lock();
        let Some(content) = content else {
            // Deletions have no content that could be unreadable.
            _ = self.set(&kind, &name, None);
            unread.remove(&(kind, name));
            return;
        };
        if format <= FORMAT && matches!(self.set(&kind, &name, Some(&*content)), Some(Ok(()))) {
            unread.remove(&(kind, name));
            return;
        }
        _ = self.set(&kind, &name, None);
        tracing::warn!(kind, name, format, "{UNREAD}");
        let document = Document {
            format,
            kind: kind.clone(),
            name: name.clone(),
            content,
        };
        unread.insert((kind, name), document);
    }

    /// Sets or deletes a document. Returns `None` if this version does not have the kind.
    fn set(
        &self,
        kind: &str,
        name: &str,
        content: Option<&RawValue>,
    ) -> Option<Result<(), serde_json::Error>> {
        let replica = self.kinds.iter().find(|replica| replica.kind() == kind);
        replica.map(|replica| replica.set(name, content))
    }

    /// Checks the limit for a tenant's changes since the newest snapshot.
    ///
    /// # Errors
    /// Returns [`StateError::LogFull`] if the limit is reached.
    pub(crate) fn check_log(&self, tenant: &str) -> Result<(), StateError> {
        let bytes = self.tail.lock().bytes_of(tenant);
        if bytes < TENANT_BYTES {
            return Ok(());
        }
        Err(StateError::LogFull {
            tenant: tenant.to_owned(),
            bytes,
            limit: TENANT_BYTES,
        })
    }

    /// Refuses changes of a record that this version cannot read, because the content would be lost.
    ///
    /// # Errors
    /// Returns [`StateError::Newer`] if the record was written by a newer version.
    pub(crate) fn check_readable(&self, kind: &'static str, name: &str) -> Result<(), StateError> {
        let name = name.to_owned();
        match self.unread.lock().contains_key(&(kind.to_owned(), name.clone())) {
            true => Err(StateError::Newer { kind, name }),
            false => Ok(()),
        }
    }

    /// Loads the newest snapshot and the changes after it.
    async fn reload(&self) -> Result<(), StateError> {
        let mut position = self.position.lock().await;
        self.load(&mut position).await?;
        self.read_to_end(&mut position).await
    }

    /// Loads the newest snapshot, or writes the first one if the state is empty.
    async fn load(&self, position: &mut Position) -> Result<(), StateError> {
        let mut swept = None;
        for _ in 0..TRIES {
            let Some(number) = snapshot::newest(&self.store, None).await? else {
                self.write_first_snapshot().await?;
                continue;
            };
            match snapshot::read(&self.store, number).await {
                Ok((newest, documents)) => {
                    self.fill(documents).await?;
                    self.snapshot.store(newest.number, Ordering::Relaxed);
                    self.tail.lock().restart(newest.number);
                    let is_loaded = !position.mark.is_empty();
                    if is_loaded && newest.number / EPOCH != position.number / EPOCH {
                        let change = newest.number;
                        tracing::warn!(change, "the host's state was restored from a backup; reloading");
                    }
                    *position = newest;
                    return Ok(());
                }
                Err(error) if error.is_not_found() => swept = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(swept.unwrap_or_else(|| StateError::Contended {
            kind: "snapshots",
            name: String::new(),
        }))
    }

    /// Writes the first snapshot, which is empty.
    async fn write_first_snapshot(&self) -> Result<(), StateError> {
        let first = Position {
            number: 0,
            mark: unique_id()?,
        };
        snapshot::write(&self.store, &first, Vec::new()).await
    }

    #[expect(clippy::disallowed_methods, reason = "internal work, bounded by the host")]
    async fn fill(&self, documents: Vec<Document>) -> Result<(), StateError> {
        let kinds = self.kinds.clone();
        let unread = spawn_blocking(move || fill(&kinds, documents)).await?;
        if let Some(Document { kind, name, .. }) = unread.first() {
            tracing::warn!(records = unread.len(), kind, name, "{UNREAD}");
        }
        let unread = unread.into_iter();
        let unread = unread.map(|document| ((document.kind.clone(), document.name.clone()), document));
        *self.unread.lock() = unread.collect();
        Ok(())
    }

    /// If a snapshot is due, writes it and removes outdated changes and snapshots.
    pub(crate) async fn compact(&self) -> Result<(), StateError> {
        let due = CHANGES_A_SNAPSHOT.max(self.count() as u64 / DOCUMENTS_A_CHANGE);
        if !self.is_due(due).await {
            return Ok(());
        }
        // Another host may have written a snapshot in the meantime.
        let newest = self.snapshot.load(Ordering::Relaxed);
        if let Some(newer) = snapshot::newest(&self.store, Some(newest)).await? {
            self.snapshot.fetch_max(newer, Ordering::Relaxed);
            self.tail.lock().snapshot(newer);
        }
        if self.is_due(due).await {
            self.snapshot().await?;
        }
        Ok(())
    }

    /// Returns true if a snapshot is due after `due` changes.
    async fn is_due(&self, due: u64) -> bool {
        let newest = self.snapshot.load(Ordering::Relaxed);
        let changes = self.position.lock().await.number.saturating_sub(newest);
        changes >= due || self.tail.lock().bytes() >= TENANT_BYTES
    }

    /// Writes a snapshot and removes outdated changes and snapshots.
    ///
    /// # Errors
    /// Returns [`StateError`] if the store fails.
    pub async fn snapshot(&self) -> Result<(), StateError> {
        let (position, documents) = self.documents().await?;
        snapshot::write(&self.store, &position, documents).await?;
        self.snapshot.fetch_max(position.number, Ordering::Relaxed);
        self.tail.lock().snapshot(position.number);
        snapshot::sweep(&self.store).await?;
        let outdated = self.tail.lock().take_outdated(position.number);
        log::sweep(&self.store, outdated).await
    }

    /// Returns all documents and the last applied change.
    #[expect(clippy::disallowed_methods, reason = "internal work, bounded by the host")]
    pub(crate) async fn documents(&self) -> Result<(Position, Vec<Document>), StateError> {
        let read = self.read_at_position(|| {
            let dumps: Vec<Dump> = self.kinds.iter().map(|kind| kind.dump()).collect();
            let unread: Vec<Document> = self.unread.lock().values().cloned().collect();
            (dumps, unread)
        });
        let (position, (dumps, unread)) = read.await;
        let documents = spawn_blocking(|| {
            let dumps = dumps.into_iter().map(|dump| dump());
            dumps.collect::<Result<Vec<_>, _>>()
        })
        .await?
        .map_err(|error| StateError::broken("snapshots", error))?;
        Ok((position, documents.into_iter().flatten().chain(unread).collect()))
    }
}

/// Fills `kinds` with documents and returns the unreadable ones.
fn fill(kinds: &[Arc<dyn DocumentKind>], documents: Vec<Document>) -> Vec<Document> {
    let (documents, mut unread): (Vec<_>, Vec<_>) = documents
        .into_iter()
        .partition(|document| document.format <= FORMAT);
    let mut by_kind: BTreeMap<String, Vec<Document>> = BTreeMap::new();
    for document in documents {
        by_kind.entry(document.kind.clone()).or_default().push(document);
    }
    for kind in kinds {
        unread.extend(kind.replace(by_kind.remove(kind.kind()).unwrap_or_default()));
    }
    unread.extend(by_kind.into_values().flatten());
    unread
}
