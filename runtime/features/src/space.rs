//! Disk space of a cache's stores. The file `used` in the folder of a store is locked while a job uses the store,
//! and its modification time is that of the last use.

use crate::FeatureError;
use crate::error::failed;
use frostline_sealed::lru;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum number of attempts to open a store that other processes keep removing.
const TRIES: usize = 8;

/// Disk space available to one store of a cache.
#[derive(Debug, Clone)]
pub(crate) struct StoreSpace {
    /// Folder of the cache.
    folder: PathBuf,
    /// Limit of the cache in bytes.
    limit: u64,
    store: PathBuf,
}

/// The stores that were removed to make room for another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Evicted {
    pub(crate) stores: lru::Evicted,
    /// Limit of the cache in bytes.
    limit: u64,
}

impl fmt::Display for Evicted {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bytes, limit] =
            [self.stores.size, self.limit].map(|bytes| frostline_tensor::format_bytes(bytes as f64));
        let stores = self.stores.count;
        write!(
            to,
            "evicted {stores} cached feature stores of other jobs ({bytes}), the least recently used, to stay within the \
             limit of {limit}"
        )
    }
}

impl StoreSpace {
    pub(crate) fn new(folder: &Path, limit: u64, store: PathBuf) -> Self {
        Self {
            folder: folder.to_owned(),
            limit,
            store,
        }
    }

    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// Returns the bytes currently available to this store: the limit minus the sizes of all other stores.
    pub(crate) fn bytes(&self) -> u64 {
        let others = stores(&self.folder).into_iter();
        let others = others.filter(|path| *path != self.store);
        let taken: u64 = others.map(|path| bytes(&path)).sum();
        self.limit.saturating_sub(taken)
    }

    /// Evicts other unused stores, the least recently used first, until `wanted` bytes fit within the limit.
    /// Evicts no store if this is not possible.
    pub(crate) fn make_room(&self, wanted: u64) -> Evicted {
        let others = stores(&self.folder).into_iter();
        let others = others.filter(|path| *path != self.store).map(|path| lru::Entry {
            last_use: last_use(&path),
            size: bytes(&path),
            path,
        });
        let others: Vec<lru::Entry> = others.collect();
        let used = others.iter().filter(|store| !is_idle(&store.path));
        let used: u64 = used.map(|store| store.size).sum();
        let stores = match self.limit.checked_sub(wanted) {
            Some(bytes) if used <= bytes => lru::evict(others, bytes, |path| Ok(remove(path).is_ok())),
            _ => Ok(lru::Evicted::default()),
        };
        Evicted {
            stores: stores.unwrap_or_default(),
            limit: self.limit,
        }
    }
}

/// Returns the folders of all stores, including partially removed ones.
pub(crate) fn stores(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.join("used").exists()).collect()
}

pub(crate) fn bytes(store: &Path) -> u64 {
    let files = fs::read_dir(store).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// Returns true if no job is using the store.
pub(crate) fn is_idle(store: &Path) -> bool {
    File::open(store.join("used")).is_ok_and(|file| file.try_lock().is_ok())
}

pub(crate) fn last_use(store: &Path) -> SystemTime {
    let marked = fs::metadata(store.join("used")).and_then(|file| file.modified());
    marked.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Creates the folder of a store and updates the last-use time. The store remains in use until the returned
/// file is closed.
pub(crate) fn hold(path: &Path) -> Result<File, FeatureError> {
    let mark = path.join("used");
    for _ in 0..TRIES {
        fs::create_dir_all(path).map_err(failed("creating", path))?;
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&mark)
            .map_err(failed("opening", &mark))?;
        file.lock_shared().map_err(failed("locking", &mark))?;
        // Another process may have removed the store while this one waited for the lock. Verify that the
        // locked file still exists.
        let same = fs::metadata(&mark)
            .is_ok_and(|there| file.metadata().is_ok_and(|held| held.ino() == there.ino()));
        if same {
            file.set_modified(SystemTime::now())
                .map_err(failed("updating the time of", &mark))?;
            return Ok(file);
        }
    }
    Err(FeatureError::Used {
        path: path.to_owned(),
    })
}

/// Removes a store, or returns [`FeatureError::Used`] if a job is using it.
pub(crate) fn remove(path: &Path) -> Result<(), FeatureError> {
    let mark = path.join("used");
    let file = File::open(&mark).map_err(failed("opening", &mark))?;
    if file.try_lock().is_err() {
        return Err(FeatureError::Used {
            path: path.to_owned(),
        });
    }
    // Remove the mark last, so that the rest of an interrupted removal still counts as a store.
    for entry in fs::read_dir(path).map_err(failed("reading", path))?.flatten() {
        if entry.path() != mark {
            fs::remove_file(entry.path()).map_err(failed("removing", &entry.path()))?;
        }
    }
    fs::remove_file(&mark).map_err(failed("removing", &mark))?;
    fs::remove_dir(path).map_err(failed("removing", path))
}
