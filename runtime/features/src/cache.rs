use crate::error::failed;
use crate::records::RECORD;
use crate::space::{StoreSpace, bytes, hold, is_idle, last_use, remove, stores};
use crate::{FeatureError, Row, Stopped, Store};
use frostline_sealed::whole_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Version of the file formats, included in the names of stores. Stores of previous versions are ignored
/// until eviction.
const VERSION: u32 = 4;

/// Name of the lock file held by the job that is currently writing to a store of the cache.
const TURN: &str = "turn";

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
        let room = StoreSpace::new(&self.path, self.limit, path);
        let evicted = room.make_room(row.disk_bytes(rows)?);
        let turn = self.path.join(TURN);
        let turn = File::create(&turn).map_err(failed("opening", &turn))?;
        let store = Store::open(room, use_lock, turn, row, told)?;
        store.record_evicted(evicted);
        Ok(store)
    }

    /// Returns true if a store of `subject` exists.
    pub fn has(&self, subject: &Subject, row: &Row) -> bool {
        self.path.join(subject.name(row)).join("used").exists()
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
        rows: index / RECORD as u64,
        bytes: bytes(store),
        unused_seconds: unused.as_secs(),
        used: !is_idle(store),
    }
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
