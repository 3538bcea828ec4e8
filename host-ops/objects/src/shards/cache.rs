//! Indexes of shards: each is made once for all who ask, and kept as long as there is memory for it.

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

/// What the kept indexes of one root may take: a million samples, ImageNet as it stands. What is dropped is read through again.
const KEPT: u64 = 128 << 20;

/// The count the cache is laid out for; it takes more.
const USUAL: usize = 256;

/// Shards read through at once; two keep a link busy and leave most reads to samples.
const AT_ONCE: usize = 2;

/// How long a shard is read on after the last who asked has left: a client whose request timed out asks again within seconds, and finds it
/// further on.
pub(crate) const LINGER: Duration = Duration::from_secs(20);

/// A shard and its version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ShardVersion {
    /// Where it lies in the store, by whatever root it was reached.
    pub(crate) location: String,
    pub(crate) etag: String,
}

/// An index, and what keeps its memory reserved.
pub(crate) struct Held {
    pub(crate) index: Index,
    pub(crate) _memory: Option<Guard>,
    /// Whether the memory may be held after those who asked have left.
    pub(crate) keep: bool,
}

impl Deref for Held {
    type Target = Index;

    fn deref(&self) -> &Index {
        &self.index
    }
}

type Made = Result<Arc<Held>, ObjectError>;
type Making = BoxFuture<'static, Made>;

/// The indexes of one root's shards.
pub(crate) struct Indexes {
    kept: Cache<ShardVersion, Arc<Held>, Bytes>,
    making: Mutex<HashMap<ShardVersion, WeakShared<Making>>>,
    turns: Semaphore,
}

impl std::fmt::Debug for Indexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Indexes").field("kept", &self.kept.len()).finish()
    }
}

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<ShardVersion, Arc<Held>> for Bytes {
    fn weight(&self, shard: &ShardVersion, index: &Arc<Held>) -> u64 {
        (shard.location.len() + shard.etag.len() + index.bytes() + 256) as u64
    }
}

impl Indexes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            kept: Cache::with_weighter(USUAL, KEPT, Bytes),
            making: Mutex::default(),
            turns: Semaphore::new(AT_ONCE),
        })
    }

    /// The shard's index, made by `make` if it is not kept. All who ask for it share one making, which ends some seconds after the last of them
    /// has left.
    pub(crate) async fn get<F>(self: &Arc<Self>, shard: ShardVersion, make: impl FnOnce() -> F) -> Made
    where
        F: Future<Output = Result<Held, ObjectError>> + Send + 'static,
    {
        if let Some(index) = self.kept.get(&shard) {
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
        F: Future<Output = Result<Held, ObjectError>> + Send + 'static,
    {
        let mut making = self.making.lock();
        if let Some(under_way) = making.get(&shard).and_then(WeakShared::upgrade) {
            return under_way;
        }
        let (indexes, key, make) = (Arc::clone(self), shard.clone(), make());
        let made = async move {
            let _turn = indexes.turns.acquire().await;
            let index = Arc::new(make.await?);
            if index.keep {
                indexes.kept.insert(key, Arc::clone(&index));
            }
            Ok(index)
        };
        let made = made.boxed().shared();
        making.retain(|_, making| making.upgrade().is_some());
        making.extend(made.downgrade().map(|weak| (shard, weak)));
        made
    }
}

/// Somebody who waits for an index.
struct Waiting(Option<Shared<Making>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let (Some(making), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(timeout(LINGER, making));
        }
    }
}
