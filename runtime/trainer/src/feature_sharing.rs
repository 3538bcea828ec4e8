//! Feature store shared by several machines. A job downloads features before it starts and uploads new
//! features in the background.

use crate::FeatureTransfer;
use crate::compute::blocking;
use crate::{Event, Events, TrainerError};
use frostline_features::{BrokenSegment, RowKey, Segment, SegmentStore, Store, Stored, Unavailable};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Number of concurrent downloads. A download holds the segment in memory twice, and a segment has up to 16
/// MiB or a single larger row.
const FETCHES: usize = 4;

/// Objects per listing request. A page is scanned before the next is requested.
const PAGE: usize = if cfg!(test) { 3 } else { 1000 };

/// Number of invalid objects listed in a warning.
const MAX_NAMED_OBJECTS: usize = 3;

/// Upload timeout after training. It is enough for 1.5 GB at 20 Mbit/s, and only the last features are still
/// to upload.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Object with a description for humans, stored next to the segments.
const ABOUT: &str = "about.json";

/// A feature store shared between machines. Clones refer to the same store.
#[derive(Debug, Clone)]
pub struct SharedFeatureStore(Arc<SharedState>);

#[derive(Debug)]
struct SharedState {
    store: Arc<dyn SegmentStore>,
    timeout: Duration,
    /// Set after a failure of the store. The job then stops using it.
    disabled: AtomicBool,
    /// First page of the listing by local store, if already requested.
    listed: Mutex<HashMap<String, ListedPage>>,
    /// Keys of the shared features by local store, if already scanned.
    shared: Mutex<HashMap<String, HashSet<RowKey>>>,
    /// Names of invalid objects.
    broken: Mutex<HashSet<String>>,
}

/// Result of listing a page.
#[derive(Debug, Clone)]
struct ListedPage {
    segments: Vec<Stored>,
    /// Name of the last object, unless this is the last page.
    last: Option<String>,
}

/// A scanned segment, with counters for downloaded rows and bytes.
struct ScannedSegment {
    keys: Vec<RowKey>,
    rows: u64,
    bytes: u64,
}

/// The result of scanning all segments.
#[derive(Default)]
struct ScanResult {
    keys: HashSet<RowKey>,
    rows: u64,
    bytes: u64,
    broken: Vec<(String, BrokenSegment)>,
    /// Reason for an early end of the scan.
    failed: Option<String>,
}

/// Reason for skipping a segment.
enum SkippedSegment {
    Broken(String, BrokenSegment),
    Failed(String),
}

impl SharedFeatureStore {
    /// Shares features through `store`.
    pub fn new(store: Arc<dyn SegmentStore>) -> Self {
        Self::with_timeout(store, TIMEOUT)
    }

    /// [`SharedFeatureStore::new`] with a different upload timeout.
    pub(crate) fn with_timeout(store: Arc<dyn SegmentStore>, timeout: Duration) -> Self {
        Self(Arc::new(SharedState {
            store,
            timeout,
            disabled: AtomicBool::new(false),
            listed: Mutex::default(),
            shared: Mutex::default(),
            broken: Mutex::default(),
        }))
    }

    /// Returns the shared store for a new job, with all state cleared.
    pub(crate) fn for_new_job(&self) -> Self {
        Self::with_timeout(Arc::clone(&self.0.store), self.0.timeout)
    }

    /// Returns true if the shared store has any features for the local store `name`.
    pub(crate) async fn has_features(&self, name: &str, events: &Events) -> bool {
        if self.is_off() {
            return false;
        }
        let any = |page: &ListedPage| !page.segments.is_empty() || page.last.is_some();
        if let Some(known) = self.0.listed.lock().get(name).map(any) {
            return known;
        }
        match self.page(name, None).await {
            Ok(page) => {
                let any = any(&page);
                self.0.listed.lock().insert(name.to_owned(), page);
                any
            }
            Err(why) => {
                self.disable(events, &why.to_string());
                false
            }
        }
    }

    /// Lists a page of segments for the local store `name`. It starts after the object `after`.
    async fn page(&self, name: &str, after: Option<String>) -> Result<ListedPage, Unavailable> {
        let listed = self.0.store.list(name.to_owned(), after, PAGE).await;
        let mut segments = listed?;
        let last = segments.last().filter(|_| segments.len() == PAGE);
        let last = last.map(|last| last.name.clone());
        segments.retain(|stored| stored.name != ABOUT);
        Ok(ListedPage { segments, last })
    }

    /// Downloads shared features missing on this machine. Runs once per job.
    pub(crate) async fn download(&self, kept: &Arc<Store>, events: &Events) {
        let name = &kept.name();
        let done = self.0.shared.lock().contains_key(name);
        let Some(first) = self.0.listed.lock().get(name).cloned() else {
            return;
        };
        // If another job on this machine shares features, that job also downloads them.
        if done || self.is_off() || !kept.shares() {
            return;
        }
        let seen = self.scan_all(kept, first).await;
        self.report(events, FeatureTransfer::Taken, seen.rows, seen.bytes);
        self.report_broken(events, name, &seen.broken);
        let broken = seen.broken.into_iter().map(|(name, _)| name);
        self.0.broken.lock().extend(broken);
        match seen.failed {
            Some(why) => self.disable(events, &why),
            None => drop(self.0.shared.lock().insert(name.clone(), seen.keys)),
        }
    }

    /// Scans all segments, page by page, and stops if the store fails.
    async fn scan_all(&self, kept: &Arc<Store>, mut page: ListedPage) -> ScanResult {
        let free = AtomicU64::new(kept.free_rows());
        let mut seen = ScanResult::default();
        loop {
            let last = page.last.take();
            self.scan_page(kept, page, &free, &mut seen).await;
            let (Some(last), None) = (last, &seen.failed) else {
                return seen;
            };
            page = match self.page(&kept.name(), Some(last)).await {
                Ok(page) => page,
                Err(why) => {
                    seen.failed = Some(why.to_string());
                    return seen;
                }
            };
        }
    }

    async fn scan_page(&self, kept: &Arc<Store>, page: ListedPage, free: &AtomicU64, seen: &mut ScanResult) {
        let looks = page
            .segments
            .into_iter()
            .map(|stored| self.scan(kept, stored, free));
        let mut looks = stream::iter(looks).buffer_unordered(FETCHES);
        while let Some(looked) = looks.next().await {
            match looked {
                Ok(taken) => {
                    seen.keys.extend(taken.keys);
                    seen.rows += taken.rows;
                    seen.bytes += taken.bytes;
                }
                Err(SkippedSegment::Broken(name, why)) => seen.broken.push((name, why)),
                Err(SkippedSegment::Failed(why)) => {
                    seen.failed = Some(why);
                    return;
                }
            }
        }
    }

    /// Downloads the segment if any row is missing on this machine and all missing rows fit.
    async fn scan(
        &self,
        kept: &Arc<Store>,
        stored: Stored,
        free: &AtomicU64,
    ) -> Result<ScannedSegment, SkippedSegment> {
        let broken = |why| SkippedSegment::Broken(stored.name.clone(), why);
        let form = kept.segments();
        let count = form.rows(&stored.name, stored.size).map_err(broken)?;
        let key = format!("{}/{}", kept.name(), stored.name);
        let head = form.head_bytes(count) as u64;
        let mut bytes = self.0.store.read(key.clone(), 0..head).await?;
        let keys = form.keys(&bytes, count).map_err(broken)?;
        let lacking = keys.len().saturating_sub(kept.count(keys.iter())) as u64;
        let fits = |free: u64| free.checked_sub(lacking);
        let room = free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        if lacking == 0 || room.is_err() {
            let (rows, bytes) = (0, 0);
            return Ok(ScannedSegment { keys, rows, bytes });
        }
        bytes.extend(self.0.store.read(key, head..stored.size).await?);
        let (name, kept) = (stored.name.clone(), Arc::clone(kept));
        let take = move || {
            let segment = form.check(&name, bytes);
            Ok(segment.map(|segment| kept.import(&segment)))
        };
        let rows = blocking(take).await?.map_err(broken)? as u64;
        let bytes = stored.size;
        Ok(ScannedSegment { keys, rows, bytes })
    }

    /// Uploads rows that the shared store does not contain yet.
    async fn send(&self, kept: &Arc<Store>, events: &Events) {
        let (mut rows, mut bytes) = (0, 0);
        let sent = self.send_all(kept, &mut rows, &mut bytes).await;
        self.report(events, FeatureTransfer::Sent, rows, bytes);
        if let Err(why) = sent {
            self.disable(events, &why);
        }
    }

    async fn send_all(&self, kept: &Arc<Store>, rows: &mut u64, bytes: &mut u64) -> Result<(), String> {
        if self.is_off() || !kept.shares() {
            return Ok(());
        }
        let (shared, own) = (self.clone(), Arc::clone(kept));
        let find = move || {
            own.settle();
            let shared = shared.0.shared.lock();
            Ok(shared.get(&own.name()).map(|shared| own.unshared(shared)))
        };
        let unshared = blocking(find).await.map_err(|error| error.to_string())?;
        let most = kept.segments().max_rows();
        for keys in unshared.unwrap_or_default().chunks(most) {
            let built = self.build(kept, keys.to_vec()).await;
            let Some((file, segment)) = built.map_err(|error| error.to_string())? else {
                continue;
            };
            if *rows == 0 {
                self.put(kept, ABOUT, kept.about().to_vec()).await?;
            }
            let keys = segment.keys();
            let body = segment.into_bytes();
            let length = body.len() as u64;
            self.put(kept, &file, body).await?;
            (*rows, *bytes) = (*rows + keys.len() as u64, *bytes + length);
            if let Some(shared) = self.0.shared.lock().get_mut(&kept.name()) {
                shared.extend(keys);
            }
        }
        Ok(())
    }

    /// Builds a segment with these rows. The name must differ from all invalid objects, because objects are
    /// never replaced.
    async fn build(
        &self,
        kept: &Arc<Store>,
        mut keys: Vec<RowKey>,
    ) -> Result<Option<(String, Segment)>, TrainerError> {
        let (shared, kept) = (self.clone(), Arc::clone(kept));
        blocking(move || {
            let named = |segment: Segment| (segment.name(), segment);
            let built = kept.segment(&keys).map(named);
            let taken = |built: &(String, Segment)| shared.0.broken.lock().contains(&built.0);
            if !built.as_ref().is_some_and(taken) {
                return Ok(built);
            }
            // Reversing the rows results in a different hash.
            keys.reverse();
            Ok(kept.segment(&keys).map(named))
        })
        .await
    }

    /// Creates an object. An existing object has the same content, because segments are named by hash.
    async fn put(&self, kept: &Store, name: &str, bytes: Vec<u8>) -> Result<(), String> {
        let key = format!("{}/{name}", kept.name());
        let put = self.0.store.put_new(key, bytes).await;
        put.map(drop).map_err(|error| error.to_string())
    }

    fn is_off(&self) -> bool {
        self.0.disabled.load(Ordering::Relaxed)
    }

    /// Stops using the store, with one warning.
    fn disable(&self, events: &Events, why: &str) {
        if !self.0.disabled.swap(true, Ordering::Relaxed) {
            let store = self.0.store.shown();
            let message =
                format!("stopped sharing features through {store}, caching on this machine only: {why}");
            events(Event::Warning { message });
        }
    }

    fn report(&self, events: &Events, what: FeatureTransfer, rows: u64, bytes: u64) {
        if rows > 0 {
            let store = self.0.store.shown();
            events(Event::Shared {
                what,
                rows,
                bytes,
                store,
            });
        }
    }

    fn report_broken(&self, events: &Events, folder: &str, broken: &[(String, BrokenSegment)]) {
        let named = broken.iter().take(MAX_NAMED_OBJECTS);
        let named: Vec<String> = named.map(|(name, why)| format!("{name}: {why}")).collect();
        if named.is_empty() {
            return;
        }
        let more = if broken.len() > MAX_NAMED_OBJECTS {
            "; .."
        } else {
            ""
        };
        let message = format!(
            "ignored {} invalid objects in {folder} of {}, which can be removed: {}{more}",
            broken.len(),
            self.0.store.shown(),
            named.join("; ")
        );
        events(Event::Warning { message });
    }
}

impl From<Unavailable> for SkippedSegment {
    fn from(why: Unavailable) -> Self {
        Self::Failed(why.to_string())
    }
}

impl From<TrainerError> for SkippedSegment {
    fn from(why: TrainerError) -> Self {
        Self::Failed(why.to_string())
    }
}

/// Background uploads of features. Dropping this cancels them, and the next job uploads the rest.
pub(crate) struct FeatureUploads {
    shared: Option<SharedFeatureStore>,
    events: Events,
    /// Allows a single upload at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    tasks: JoinSet<()>,
}

impl FeatureUploads {
    pub(crate) fn new(shared: Option<&SharedFeatureStore>, events: &Events) -> Self {
        Self {
            shared: shared.cloned(),
            events: Arc::clone(events),
            turn: Arc::default(),
            tasks: JoinSet::new(),
        }
    }

    /// Uploads the features cached so far in the background.
    pub(crate) fn start_upload(&mut self, kept: Option<&Arc<Store>>) {
        let (Some(shared), Some(kept)) = (self.shared.clone(), kept.cloned()) else {
            return;
        };
        let (turn, events) = (Arc::clone(&self.turn), Arc::clone(&self.events));
        self.tasks.spawn(async move {
            let _turn = turn.lock().await;
            shared.send(&kept, &events).await;
        });
    }

    /// Waits for all uploads, up to the timeout.
    pub(crate) async fn finish(mut self) {
        while self.tasks.try_join_next().is_some() {}
        let Some(shared) = self.shared.filter(|_| !self.tasks.is_empty()) else {
            return;
        };
        let (store, timeout) = (shared.0.store.shown(), shared.0.timeout);
        (self.events)(Event::Sharing {
            store: store.clone(),
            seconds: timeout.as_secs_f64(),
        });
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(timeout, all).await.is_err() {
            let message = format!(
                "uploading features to {store} timed out after {timeout:?}; the next job on this machine uploads the rest"
            );
            (self.events)(Event::Warning { message });
        }
    }
}
