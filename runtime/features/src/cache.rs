use crate::error::failed;
use crate::store::OpenStore;
use crate::{FeatureError, Row, Stopped, Store};
use frostline_sealed::whole_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Version of the file formats, included in the names of stores. Stores of previous versions are ignored
/// until eviction.
const VERSION: u32 = 4;

/// Name of the lock file held by the job that is currently writing to a store of the cache.
const TURN: &str = "turn";

/// Maximum number of attempts to open a store that other processes keep removing.
const TRIES: usize = 8;

/// Returns the user's folder for reproducible data: `$XDG_CACHE_HOME/frostline`, or `~/.cache/frostline`.
/// Returns `None` if neither `XDG_CACHE_HOME` nor `HOME` is an absolute path.
pub fn folder_of_user() -> Option<PathBuf> {
    let caches = absolute_path("XDG_CACHE_HOME").or_else(|| Some(absolute_path("HOME")?.join(".cache")));
    caches.map(|folder| folder.join("frostline"))
}

/// Returns the path in an environment variable, or `None` if it is not absolute.
fn absolute_path(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    path.is_absolute().then_some(path)
}

/// Identifies the features in a store; see [`Provenance`](crate::Provenance).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Name of the network. For display only.
    pub model: String,
    /// Freeze cut. For display only.
    pub freeze: String,
    /// Data root of the samples.
    pub data: String,
    /// All other inputs that determine the values.
    pub made_by: serde_json::Value,
}

/// Contents of a store's `about.json`.
#[derive(Serialize, Deserialize)]
struct About {
    version: u32,
    subject: Subject,
    row: Row,
}

/// A folder of stores with a common size limit.
#[derive(Debug, Clone)]
pub struct Cache {
    path: PathBuf,
    limit: u64,
}

/// Disk space available to one store of a cache.
#[derive(Debug, Clone)]
pub(crate) struct StoreSpace {
    cache: Cache,
    store: PathBuf,
}

/// The stores that were removed to make room for another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Evicted {
    pub(crate) stores: usize,
    pub(crate) bytes: u64,
    /// Limit of the cache in bytes.
    limit: u64,
}

impl fmt::Display for Evicted {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bytes, limit] =
            [self.bytes, self.limit].map(|bytes| frostline_tensor::format_bytes(bytes as f64));
        let stores = self.stores;
        write!(
            to,
            "evicted {stores} cached feature stores of other jobs ({bytes}), the least recently used, to stay within the \
             limit of {limit}"
        )
    }
}

impl StoreSpace {
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// Returns the bytes currently available to this store: the limit minus the sizes of all other stores.
    pub(crate) fn bytes(&self) -> u64 {
        let others = stores(&self.cache.path).into_iter();
        let others = others.filter(|path| *path != self.store);
        let taken: u64 = others.map(|path| bytes(&path)).sum();
        self.cache.limit.saturating_sub(taken)
    }
}

/// Store description returned by [`Cache::list`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoreInfo {
    /// Name of the store's folder, as accepted by [`Cache::clear`].
    pub name: String,
    /// Subject of the store. `None` if `about.json` is missing or invalid.
    pub subject: Option<Subject>,
    /// Format of the rows. `None` if `about.json` is missing or invalid.
    pub row: Option<Row>,
    /// Number of rows on disk, including replaced ones.
    pub rows: u64,
    /// Size on disk in bytes.
    pub bytes: u64,
    /// Seconds since a job last opened the store.
    pub unused_seconds: u64,
    /// True if a job is using the store, or if the lock file is missing or cannot be opened.
    pub used: bool,
}

impl Cache {
    /// Creates a cache of `limit` bytes in the folder `path`. The folder is created together with the first
    /// store.
    pub fn new(path: impl Into<PathBuf>, limit: u64) -> Self {
        Self {
            path: path.into(),
            limit,
        }
    }

    /// Creates a cache of `limit` bytes in `folder`. The defaults are [`Cache::usual_folder`] and
    /// [`Cache::usual_limit`]. Returns `None` if the folder or the limit cannot be determined.
    pub fn with_defaults(folder: Option<PathBuf>, limit: Option<u64>) -> Option<Self> {
        // Relative paths may not have an existing ancestor, which is required to determine the default limit.
        let folder = std::path::absolute(folder.or_else(Self::usual_folder)?).ok()?;
        let limit = limit.or_else(|| Self::usual_limit(&folder))?;
        Some(Self::new(folder, limit))
    }

    /// Returns the default folder: `features` in [`folder_of_user`].
    pub fn usual_folder() -> Option<PathBuf> {
        Some(folder_of_user()?.join("features"))
    }

    /// Returns the default limit: half of the disk space that would be free without the existing stores. This
    /// is enough for most jobs and never fills the disk. Returns `None` if the file system cannot be queried.
    pub fn usual_limit(path: &Path) -> Option<u64> {
        let there = path.ancestors().find(|folder| folder.exists())?;
        let disk = rustix::fs::statvfs(there).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let kept: u64 = stores(path).iter().map(|path| bytes(path)).sum();
        Some(free.saturating_add(kept) / 2)
    }

    /// Returns the folder of the cache.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Opens the store of `subject`, and creates it if it does not exist. Evicts the least recently used
    /// stores if this makes room for `rows` rows. Calls `told` if writing stops because the limit is reached
    /// or the disk fails.
    ///
    /// # Errors
    /// Returns [`FeatureError::Io`] if a file cannot be created, locked or read, [`FeatureError::Row`] if the
    /// row size is invalid, and [`FeatureError::Used`] if other processes keep removing the store.
    pub fn open(
        &self,
        subject: &Subject,
        row: &Row,
        rows: u64,
        told: Stopped,
    ) -> Result<Store, FeatureError> {
        let path = self.path.join(subject.name(row));
        let use_lock = hold(&path)?;
        write_about(&path, subject, row)?;
        let evicted = self.make_room(&path, row.disk_bytes(rows)?);
        let turn = self.path.join(TURN);
        let opened = OpenStore {
            room: StoreSpace {
                cache: self.clone(),
                store: path,
            },
            turn: File::create(&turn).map_err(failed("opening", &turn))?,
            use_lock,
            evicted,
        };
        Store::open(opened, row, told)
    }

    /// Returns true if a store of `subject` exists.
    pub fn has(&self, subject: &Subject, row: &Row) -> bool {
        self.path.join(subject.name(row)).join("used").exists()
    }

    /// Evicts unused stores other than `own`, the least recently used first, until `wanted` bytes fit within
    /// the limit. Evicts no store if this is not possible.
    fn make_room(&self, own: &Path, wanted: u64) -> Evicted {
        let mut others = stores(&self.path);
        others.retain(|path| path != own);
        let mut taken: u64 = others.iter().map(|path| bytes(path)).sum();
        others.retain(|path| is_idle(path));
        let idle: u64 = others.iter().map(|path| bytes(path)).sum();
        let mut evicted = Evicted {
            limit: self.limit,
            ..Evicted::default()
        };
        if taken.saturating_sub(idle).saturating_add(wanted) > self.limit {
            return evicted;
        }
        others.sort_by_key(|path| last_use(path));
        for path in others {
            if taken.saturating_add(wanted) <= self.limit {
                break;
            }
            let freed = bytes(&path);
            if remove(&path).is_ok() {
                taken = taken.saturating_sub(freed);
                evicted.stores += 1;
                evicted.bytes += freed;
            }
        }
        evicted
    }

    /// Lists all stores, starting with the most recently used one.
    pub fn list(&self) -> Vec<StoreInfo> {
        let mut all = stores(&self.path);
        all.sort_by_key(|path| std::cmp::Reverse(last_use(path)));
        all.iter().map(|path| listed(path)).collect()
    }

    /// Removes the stores with these names, or all stores if `names` is empty. Returns the number of removed
    /// stores and their size in bytes.
    ///
    /// # Errors
    /// Returns [`FeatureError::Used`] if a store is in use, and [`FeatureError::Io`] if its files cannot be
    /// removed. The remaining stores are removed in both cases.
    pub fn clear(&self, names: &[String]) -> Result<(usize, u64), FeatureError> {
        let mut count = 0;
        let mut freed = 0;
        let mut refused = None;
        for path in stores(&self.path).into_iter().filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            names.is_empty() || names.iter().any(|wanted| *wanted == name)
        }) {
            let held = bytes(&path);
            match remove(&path) {
                Ok(()) => (count, freed) = (count + 1, freed + held),
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok((count, freed)), Err)
    }
}

impl Subject {
    /// Returns the name of the store with rows in this format. The name does not depend on the machine.
    pub fn name(&self, row: &Row) -> String {
        // The fields for display do not count.
        let depends = serde_json::json!([VERSION, self.data, self.made_by, row]);
        hex::encode(Sha256::digest(depends.to_string()).get(..16).unwrap_or_default())
    }
}

/// Returns the folders of all stores, including partially removed ones.
fn stores(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.join("used").exists()).collect()
}

fn bytes(store: &Path) -> u64 {
    let files = fs::read_dir(store).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// Returns true if no job is using the store.
fn is_idle(store: &Path) -> bool {
    File::open(store.join("used")).is_ok_and(|file| file.try_lock().is_ok())
}

fn last_use(store: &Path) -> SystemTime {
    let marked = fs::metadata(store.join("used")).and_then(|file| file.modified());
    marked.unwrap_or(SystemTime::UNIX_EPOCH)
}

fn listed(store: &Path) -> StoreInfo {
    let about = fs::read(store.join("about.json")).ok();
    let about: Option<About> = about.and_then(|text| serde_json::from_slice(&text).ok());
    let index = fs::metadata(store.join("index")).map_or(0, |file| file.len());
    let unused = last_use(store).elapsed().unwrap_or_default();
    StoreInfo {
        name: store
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        row: about.as_ref().map(|about| about.row.clone()),
        subject: about.map(|about| about.subject),
        rows: index / crate::index::RECORD as u64,
        bytes: bytes(store),
        unused_seconds: unused.as_secs(),
        used: !is_idle(store),
    }
}

/// Creates the folder of a store and updates the last-use time. The store remains in use until the returned
/// file is closed.
fn hold(path: &Path) -> Result<File, FeatureError> {
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

/// Writes `about.json` for people, unless a valid one exists. Rows can be read without this file.
fn write_about(path: &Path, subject: &Subject, row: &Row) -> Result<(), FeatureError> {
    let file = path.join("about.json");
    let there = fs::read(&file).ok();
    if there.is_some_and(|text| serde_json::from_slice::<About>(&text).is_ok()) {
        return Ok(());
    }
    let about = About {
        version: VERSION,
        subject: subject.clone(),
        row: row.clone(),
    };
    let text = serde_json::to_vec(&about).unwrap_or_default();
    whole_file::write(&file, |to| to.write_all(&text)).map_err(failed("writing", &file))
}

/// Removes a store, or returns [`FeatureError::Used`] if a job is using it.
fn remove(path: &Path) -> Result<(), FeatureError> {
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
