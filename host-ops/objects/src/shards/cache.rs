//! Indexes that are kept, so that a shard is read through once.

use super::Index;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What the kept indexes of one root may take: a million samples, ImageNet as it stands. What is dropped is read through again.
const KEPT: u64 = 128 << 20;

/// The count the cache is laid out for; it takes more.
const USUAL: usize = 256;

/// Shards read through at once. Each takes four ranges of 8 MiB; two keep a link busy and leave most reads to samples.
const AT_ONCE: usize = 2;

/// A shard and its version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ShardVersion {
    pub(crate) key: String,
    pub(crate) etag: String,
}

/// The indexes of one root's shards.
#[derive(Debug)]
pub(crate) struct Indexes {
    kept: Cache<ShardVersion, Arc<Index>, Bytes>,
    turns: Semaphore,
}

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<ShardVersion, Arc<Index>> for Bytes {
    fn weight(&self, shard: &ShardVersion, index: &Arc<Index>) -> u64 {
        (shard.key.len() + shard.etag.len() + index.bytes() + 256) as u64
    }
}

impl Indexes {
    pub(crate) fn new() -> Self {
        Self {
            kept: Cache::with_weighter(USUAL, KEPT, Bytes),
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// The shard's index, if it is kept.
    pub(crate) fn kept(&self, shard: &ShardVersion) -> Option<Arc<Index>> {
        self.kept.get(shard)
    }

    /// The shard's index, made by `make` if it is not kept. Whoever asks for it meanwhile waits for the same one.
    pub(crate) async fn get<E>(
        &self,
        shard: &ShardVersion,
        make: impl Future<Output = Result<Index, E>>,
    ) -> Result<Arc<Index>, E> {
        let made = async {
            let _turn = self.turns.acquire().await;
            Ok(Arc::new(make.await?))
        };
        self.kept.get_or_insert_async(shard, made).await
    }
}
