//! One host's view of the shared state: the documents as the log made them, and how far it was read. What another host changed is read
//! and applied in the log's order; what this host changes is created as the next of the log, on top of all before it.

use super::error::StateError;
use super::log::{Change, Log, Position};
use super::record::FORMAT;
use super::snapshot::{self, Document};
use crate::unique::unique_id;
use frostline_objects::Store;
use futures::{StreamExt, stream};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;

/// The most changes read at once. A store answers in some 30 ms, so a hundred changes are known after a quarter of a second.
const READ_AT_ONCE: u64 = 64;

/// Changes after a snapshot before the next one is due, and beyond them one for so many documents: what is written anew each time
/// stays in proportion to what changed, and what a start reads one by one in proportion to what there is.
const CHANGES_A_SNAPSHOT: u64 = 500;
const DOCUMENTS_A_CHANGE: u64 = 16;

/// Changes that stay although they are in a snapshot. Who is further behind goes on from that.
const KEPT: u64 = 1000;

/// How long a change waits for those before it. Each takes a tenth of a second, on a store that stalls a minute.
const PATIENCE: Duration = Duration::from_secs(60);

/// Said of records in [`Journal::unread`].
const UNREAD: &str = "cannot read a record of the host's state that a newer version wrote; it is kept, and not served here; upgrade this host";

/// Tries to read a snapshot. Each fails only because a newer one is there.
const TRIES: usize = 8;

/// All documents of one kind, as the journal looks after them.
pub(super) trait Kind: Send + Sync {
    /// The kind.
    fn kind(&self) -> &'static str;

    /// How many there are.
    fn count(&self) -> usize;

    /// Makes `content` the document of that name; nothing deletes it.
    fn set(&self, name: &str, content: Option<&RawValue>) -> Result<(), serde_json::Error>;

    /// Makes these all there are, but those that cannot be read, which it gives back.
    fn replace(&self, documents: Vec<Document>) -> Vec<Document>;

    /// What writes down all there are at this moment.
    fn dump(&self) -> Dump;
}

/// Writes documents down.
pub(super) type Dump = Box<dyn FnOnce() -> Result<Vec<Document>, serde_json::Error> + Send>;

/// See the module.
pub(crate) struct Journal {
    store: Arc<Store>,
    log: Log,
    kinds: Vec<Arc<dyn Kind>>,
    /// Documents of newer builds that this one cannot read, by kind and name. They are neither served nor changed, and go into snapshots.
    unread: parking_lot::Mutex<BTreeMap<(String, String), Document>>,
    /// Held while changes are read and applied.
    position: Mutex<Position>,
    /// Held by who adds a change, so that those of one host do not get in each other's way.
    adding: Mutex<()>,
    /// The newest snapshot's number, as far as is known.
    snapshot: AtomicU64,
    /// When the last reading that came to the log's end began.
    read: parking_lot::Mutex<Instant>,
}

impl Journal {
    /// Reads what is there.
    pub(super) async fn open(store: Arc<Store>, kinds: Vec<Arc<dyn Kind>>) -> Result<Self, StateError> {
        let journal = Self {
            log: Log::new(Arc::clone(&store)),
            store,
            kinds,
            unread: parking_lot::Mutex::default(),
            position: Mutex::default(),
            adding: Mutex::default(),
            snapshot: AtomicU64::new(0),
            read: parking_lot::Mutex::new(Instant::now()),
        };
        let mut position = journal.position.lock().await;
        journal.load(&mut position).await?;
        journal.read_on(&mut position).await?;
        drop(position);
        Ok(journal)
    }

    /// How long ago the log was known to its end.
    pub(crate) fn age(&self) -> Duration {
        self.read.lock().elapsed()
    }

    /// The number of the last change that is known.
    pub(crate) async fn last_change(&self) -> u64 {
        self.position.lock().await.number
    }

    /// How many documents are known.
    pub(super) fn count(&self) -> usize {
        self.kinds.iter().map(|kind| kind.count()).sum()
    }

    /// Reads what others changed before this was asked for. Of many who ask at once, one reads for all.
    pub(super) async fn catch_up(&self) -> Result<(), StateError> {
        let asked = Instant::now();
        let mut position = self.position.lock().await;
        if *self.read.lock() >= asked {
            return Ok(());
        }
        self.read_on(&mut position).await
    }

    /// The same for a host that may be so far behind that the next change was removed, or whose state was replaced by another.
    pub(super) async fn review(&self) -> Result<(), StateError> {
        let mut position = self.position.lock().await;
        let newer = snapshot::newest(&self.store, Some(position.number)).await?;
        if newer.is_none() && !self.is_there(&position).await? {
            tracing::warn!("the host's state was replaced by an older one; reloading it");
            self.load(&mut position).await?;
        } else if newer.is_some() {
            self.load(&mut position).await?;
        }
        self.read_on(&mut position).await
    }

    /// The right to add a change, for one at a time.
    ///
    /// # Errors
    /// [`StateError::Contended`] where the others before take too long.
    pub(super) async fn adding(
        &self,
        kind: &'static str,
        name: &str,
    ) -> Result<MutexGuard<'_, ()>, StateError> {
        let turn = tokio::time::timeout(PATIENCE, self.adding.lock()).await;
        turn.map_err(|_| StateError::Contended {
            kind,
            name: name.to_owned(),
        })
    }

    /// What `read` gets of the documents, and the change they end with.
    pub(super) async fn at<T>(&self, read: impl FnOnce() -> T) -> (Position, T) {
        let position = self.position.lock().await;
        (position.clone(), read())
    }

    /// Adds what follows on `before`, and applies it; `false` when something else does.
    pub(super) async fn add(
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
        if !self.log.create(number, &change).await? {
            self.catch_up().await?;
            return Ok(false);
        }
        if !self.follows(before).await? {
            self.log.remove(number).await?;
            let mut position = self.position.lock().await;
            self.load(&mut position).await?;
            self.read_on(&mut position).await?;
            return Ok(false);
        }
        let mut position = self.position.lock().await;
        // Whoever looked for news meanwhile has read it already.
        if position.number < number {
            let mark = change.mark.clone();
            self.apply(change);
            *position = Position { number, mark };
        }
        Ok(true)
    }

    /// Whether a change created after `before` is at the log's end, and not where those were that all others forgot long ago: this host
    /// may have stood still for days.
    async fn follows(&self, before: &Position) -> Result<bool, StateError> {
        self.is_there(before).await.map_err(|error| match error {
            StateError::Store(error) => StateError::Unsure { error },
            error => error,
        })
    }

    /// Whether the state still has this change, or begins with it.
    async fn is_there(&self, position: &Position) -> Result<bool, StateError> {
        match position.number {
            0 => snapshot::is_first(&self.store, &position.mark).await,
            _ => self.log.holds(position).await,
        }
    }

    /// Reads on to the log's end: one change, then twice as many at once each time.
    async fn read_on(&self, position: &mut Position) -> Result<(), StateError> {
        let (mut at_once, mut began) = (1, Instant::now());
        loop {
            let first = position.number + 1;
            let numbers = first..first + at_once;
            let read = |number| async move { (number, self.log.read(number).await) };
            let mut changes = stream::iter(numbers).map(read).buffered(READ_AT_ONCE as usize);
            while let Some((number, change)) = changes.next().await {
                let Some(change) = change? else {
                    *self.read.lock() = began;
                    return Ok(());
                };
                let mark = change.mark.clone();
                self.apply(change);
                *position = Position { number, mark };
            }
            drop(changes);
            (at_once, began) = ((at_once * 2).min(READ_AT_ONCE), Instant::now());
        }
    }

    fn apply(&self, change: Change) {
        let Change {
            format,
            kind,
            name,
            content,
            ..
        } = change;
        if kind.is_empty() {
            return;
        }
        let replica = self.kinds.iter().find(|replica| replica.kind() == kind);
        let set = |content| replica.map(|replica| replica.set(&name, content));
        let mut unread = self.unread.lock();
        let Some(content) = content else {
            unread.remove(&(kind, name.clone()));
            // Nothing is always readable.
            _ = set(None);
            return;
        };
        if format <= FORMAT && matches!(set(Some(&*content)), Some(Ok(()))) {
            unread.remove(&(kind, name));
            return;
        }
        _ = set(None);
        tracing::warn!(kind, name, format, "{UNREAD}");
        let document = Document {
            format,
            kind: kind.clone(),
            name: name.clone(),
            content,
        };
        unread.insert((kind, name), document);
    }

    /// Refuses to change what a newer build wrote and this one cannot read, which would be lost.
    ///
    /// # Errors
    /// [`StateError::Newer`].
    pub(super) fn check_readable(&self, kind: &'static str, name: &str) -> Result<(), StateError> {
        let name = name.to_owned();
        match self.unread.lock().contains_key(&(kind.to_owned(), name.clone())) {
            true => Err(StateError::Newer { kind, name }),
            false => Ok(()),
        }
    }

    /// Goes on from the newest snapshot, making the first where there is none.
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

    /// Makes the first snapshot, which holds nothing.
    async fn write_first_snapshot(&self) -> Result<(), StateError> {
        let first = Position {
            number: 0,
            mark: unique_id()?,
        };
        snapshot::write(&self.store, &first, Vec::new()).await
    }

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

    /// Writes a snapshot when one is due, and removes what it makes unnecessary.
    pub(super) async fn compact(&self) -> Result<(), StateError> {
        let due = CHANGES_A_SNAPSHOT.max(self.count() as u64 / DOCUMENTS_A_CHANGE);
        let is_due = async || {
            let newest = self.snapshot.load(Ordering::Relaxed);
            self.position.lock().await.number.saturating_sub(newest) >= due
        };
        if !is_due().await {
            return Ok(());
        }
        // Another host may have written one since.
        let newest = self.snapshot.load(Ordering::Relaxed);
        if let Some(newer) = snapshot::newest(&self.store, Some(newest)).await? {
            self.snapshot.fetch_max(newer, Ordering::Relaxed);
        }
        if is_due().await {
            self.snapshot().await?;
        }
        Ok(())
    }

    /// Writes a snapshot of what is known now, and removes what it makes unnecessary.
    pub(super) async fn snapshot(&self) -> Result<(), StateError> {
        let (position, documents) = self.documents().await?;
        snapshot::write(&self.store, &position, documents).await?;
        self.snapshot.fetch_max(position.number, Ordering::Relaxed);
        snapshot::sweep(&self.store).await?;
        self.log.sweep(position.number.saturating_sub(KEPT)).await
    }

    /// All documents, and the change they end with.
    pub(super) async fn documents(&self) -> Result<(Position, Vec<Document>), StateError> {
        let dumps = || {
            let dumps: Vec<Dump> = self.kinds.iter().map(|kind| kind.dump()).collect();
            let unread: Vec<Document> = self.unread.lock().values().cloned().collect();
            (dumps, unread)
        };
        let (position, (dumps, unread)) = self.at(dumps).await;
        let dump = || {
            let dumps = dumps.into_iter().map(|dump| dump());
            dumps.collect::<Result<Vec<_>, _>>()
        };
        let documents = spawn_blocking(dump)
            .await?
            .map_err(|error| StateError::broken("snapshots", error))?;
        Ok((position, documents.into_iter().flatten().chain(unread).collect()))
    }
}

/// Those that cannot be read.
fn fill(kinds: &[Arc<dyn Kind>], documents: Vec<Document>) -> Vec<Document> {
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
