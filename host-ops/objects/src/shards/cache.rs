//! Cache of shard indexes. Each index is built once for all concurrent requests and cached if memory is
//! available.

use super::Index;
use crate::ObjectError;
use crate::room::Guard;
use futures::future::{BoxFuture, FutureExt, Shared, WeakShared};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum cache memory in bytes, enough for the million samples in ImageNet. Evicted indexes are built
/// again.
const MAX_CACHED_BYTES: u64 = 128 << 20;

/// Expected number of cached indexes. This is not a limit.
const USUAL: usize = 256;

/// Number of shards read through concurrently. Two keep a link busy and leave most reads to samples.
const AT_ONCE: usize = 2;

/// Additional duration for reading a shard after the last request was dropped. A client that timed out
/// retries within seconds and resumes the same build.
pub(crate) const LINGER: Duration = Duration::from_secs(20);

/// Identifies a version of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ShardVersion {
    /// Location in the store, regardless of the root.
    pub(crate) location: String,
    pub(crate) etag: String,
    /// Time of the last change of a shard in a folder.
    pub(crate) changed: Option<u64>,
}

/// Index with reserved memory.
pub(crate) struct ReservedIndex {
    pub(crate) index: Index,
    pub(crate) _memory: Option<Guard>,
    /// True if the memory may stay reserved after all requests have ended.
    pub(crate) keep: bool,
}

impl Deref for ReservedIndex {
    type Target = Index;

    fn deref(&self) -> &Index {
        &self.index
    }
}

type IndexResult = Result<Arc<ReservedIndex>, ObjectError>;
type Making = BoxFuture<'static, IndexResult>;

/// Shard indexes for a root.
pub(crate) struct Indexes {
    cache: Cache<ShardVersion, Arc<ReservedIndex>, IndexWeighter>,
    making: Mutex<HashMap<ShardVersion, WeakShared<Making>>>,
    turns: Semaphore,
}

impl std::fmt::Debug for Indexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Indexes")
            .field("kept", &self.cache.len())
            .finish()
    }
}

#[derive(Debug, Clone)]
struct IndexWeighter;

impl Weighter<ShardVersion, Arc<ReservedIndex>> for IndexWeighter {
    fn weight(&self, shard: &ShardVersion, index: &Arc<ReservedIndex>) -> u64 {
        (shard.location.len() + shard.etag.len() + index.bytes() + 256) as u64
    }
}

impl Indexes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            cache: Cache::with_weighter(USUAL, MAX_CACHED_BYTES, IndexWeighter),
            making: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        })
    }

    /// Returns the shard's index, built by `make` if it is not cached. Concurrent requests share a build. The
    /// build is dropped [`LINGER`] after the last request.
    pub(crate) async fn get<F>(self: &Arc<Self>, shard: ShardVersion, make: impl FnOnce() -> F) -> IndexResult
    where
        F: Future<Output = Result<ReservedIndex, ObjectError>> + Send + 'static,
    {
        if let Some(index) = self.cache.get(&shard) {
            return Ok(index);
        }
        let making = self.join(shard, make);
        let mut waiting = Waiting(Some(making.clone()));
        let made = making.await;
        waiting.0 = None;
        made
    }

    fn join<F>(self: &Arc<Self>, shard: ShardVersion, make: impl FnOnce() -> F) -> Shared<Making>
    where
        F: Future<Output = Result<ReservedIndex, ObjectError>> + Send + 'static,
    {
        let mut making = self.making.lock();
        if let Some(under_way) = making.get(&shard).and_then(WeakShared::upgrade) {
            return under_way;
        }
        let indexes = Arc::clone(self);
        let key = shard.clone();
        let make = make();
        let made = async move {
            let _turn = indexes.turns.acquire().await;
            let index = Arc::new(make.await?);
            if index.keep {
                indexes.cache.insert(key, Arc::clone(&index));
            }
            Ok(index)
        };
        let made = made.boxed().shared();
        making.retain(|_, making| making.upgrade().is_some());
        making.extend(made.downgrade().map(|weak| (shard, weak)));
        made
    }
}

/// A request that waits for an index. If it is dropped, the build continues for up to [`LINGER`].
struct Waiting(Option<Shared<Making>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let (Some(making), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(timeout(LINGER, making));
        }
    }
}
