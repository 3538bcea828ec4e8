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

/// The form of all files of a store. Stores of other forms lie in other folders, and go with the time.
const VERSION: u32 = 3;

/// Locked by the job that writes rows of any store.
const TURN: &str = "turn";

/// How often a store is opened anew that somebody removes at the same moment.
const TRIES: usize = 8;

/// Where what can be made again is kept for this user: `$XDG_CACHE_HOME/frostline` or `~/.cache/frostline`; `None` when the environment names
/// neither.
pub fn folder_of_user() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    caches.map(|folder| folder.join("frostline"))
}

/// What one store holds the rows of; see [`Provenance`](crate::Provenance).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// For people: the network.
    pub model: String,
    /// For people: the freeze cut.
    pub freeze: String,
    /// Where the samples lie.
    pub data: String,
    /// All else that values depend on.
    pub made_by: serde_json::Value,
}

/// What a store's folder says about it.
#[derive(Serialize, Deserialize)]
struct About {
    version: u32,
    subject: Subject,
    row: Row,
}

/// A folder of stores that take a number of bytes together.
#[derive(Debug, Clone)]
pub struct Cache {
    path: PathBuf,
    limit: u64,
}

/// The room that a cache has for one of its stores.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    cache: Cache,
    store: PathBuf,
}

/// The stores that were removed to make room for another.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Evicted {
    pub(crate) stores: usize,
    pub(crate) bytes: u64,
    /// Bytes that the cache may take.
    limit: u64,
}

impl fmt::Display for Evicted {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [bytes, limit] =
            [self.bytes, self.limit].map(|bytes| frostline_tensor::shown_bytes(bytes as f64));
        let stores = self.stores;
        write!(
            to,
            "evicted {stores} cached feature stores of other jobs ({bytes}), the least recently used, to stay within {limit}; \
             --feature-cache sets the limit"
        )
    }
}

impl Room {
    /// The store's folder.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// Bytes that the others leave it now.
    pub(crate) fn bytes(&self) -> u64 {
        let others = stores(&self.cache.path).into_iter();
        let others = others.filter(|path| *path != self.store);
        let taken: u64 = others.map(|path| bytes(&path)).sum();
        self.cache.limit.saturating_sub(taken)
    }
}

/// A store as [`Cache::list`] tells it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    /// Its folder's name.
    pub name: String,
    /// What its rows are; none where nobody can tell any more.
    pub subject: Option<Subject>,
    /// What a row is; none where nobody can tell any more.
    pub row: Option<Row>,
    /// Rows it holds.
    pub rows: u64,
    /// Bytes it takes on disk.
    pub bytes: u64,
    /// Seconds since a job last began to use it.
    pub unused_seconds: u64,
    /// Whether a job uses it now.
    pub used: bool,
}

impl Cache {
    /// The cache in the folder `path`, which is made with the first store, of `limit` bytes.
    pub fn new(path: impl Into<PathBuf>, limit: u64) -> Self {
        Self {
            path: path.into(),
            limit,
        }
    }

    /// The cache in `folder` of at most `limit` bytes, or where and as large as it usually is; `None` where nobody can tell that.
    pub fn within(folder: Option<PathBuf>, limit: Option<u64>) -> Option<Self> {
        // A folder that is not there yet lies on the disk of the one it is to be made in, which has to be known.
        let folder = std::path::absolute(folder.or_else(Self::usual_folder)?).ok()?;
        let limit = limit.or_else(|| Self::usual_limit(&folder))?;
        Some(Self::new(folder, limit))
    }

    /// Where it is unless somebody says otherwise: `features` in [`folder_of_user`].
    pub fn usual_folder() -> Option<PathBuf> {
        Some(folder_of_user()?.join("features"))
    }

    /// Half of what its disk has free beside what the cache has already: room for all that a job keeps on most machines, without filling the disk of any.
    /// `None` where the disk cannot be asked.
    pub fn usual_limit(path: &Path) -> Option<u64> {
        let there = path.ancestors().find(|folder| folder.exists())?;
        let disk = rustix::fs::statvfs(there).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let kept: u64 = stores(path).iter().map(|path| bytes(path)).sum();
        Some(free.saturating_add(kept) / 2)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes it may take.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The store of `subject`, made where there is none. Where that makes room for `rows` rows beside the others, those that were used longest
    /// ago go. `told` is told when rows are no longer written, because of that room or of the disk.
    ///
    /// # Errors
    /// [`FeatureError::Io`].
    pub fn open(
        &self,
        subject: &Subject,
        row: &Row,
        rows: u64,
        told: Stopped,
    ) -> Result<Store, FeatureError> {
        let path = self.path.join(subject.name(row));
        let used = hold(&path)?;
        say(&path, subject, row)?;
        let evicted = self.make_room(&path, row.disk_bytes(rows)?);
        let turn = self.path.join(TURN);
        let opened = OpenStore {
            room: Room {
                cache: self.clone(),
                store: path,
            },
            turn: File::create(&turn).map_err(failed("opening", &turn))?,
            used,
            about: subject.shown(row),
            evicted,
        };
        Store::open(opened, row, told)
    }

    /// Whether there is a store of `subject`.
    pub fn has(&self, subject: &Subject, row: &Row) -> bool {
        self.path.join(subject.name(row)).join("used").exists()
    }

    /// Removes stores that nobody uses, the one used longest ago first, until there is room for `wanted` bytes beside `own` others; none where
    /// that would not do.
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

    /// Its stores, the one used last first.
    pub fn list(&self) -> Vec<Listed> {
        let mut all = stores(&self.path);
        all.sort_by_key(|path| std::cmp::Reverse(last_use(path)));
        all.iter().map(|path| listed(path)).collect()
    }

    /// Removes the stores of these names, or all of them; returns how many, and their bytes.
    ///
    /// # Errors
    /// [`FeatureError::Used`] for one that a job uses; the others are gone then. [`FeatureError::Io`].
    pub fn clear(&self, names: &[String]) -> Result<(usize, u64), FeatureError> {
        let wanted = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            names.is_empty() || names.iter().any(|wanted| *wanted == name)
        };
        let (mut count, mut freed, mut refused) = (0, 0, None);
        for path in stores(&self.path).into_iter().filter(wanted) {
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
    /// The name of the store of its rows, on every machine.
    pub fn name(&self, row: &Row) -> String {
        // What is for people may differ.
        let depends = serde_json::json!([VERSION, self.data, self.made_by, row]);
        hex::encode(Sha256::digest(depends.to_string()).get(..16).unwrap_or_default())
    }

    /// What people may read beside rows that machines share: no text of which nobody knows what it holds.
    pub fn shown(&self, row: &Row) -> Vec<u8> {
        let shown = serde_json::json!({
            "version": VERSION,
            "model": self.model,
            "freeze": self.freeze,
            "data": without_credentials(&self.data),
            "row": row,
        });
        serde_json::to_vec_pretty(&shown).unwrap_or_default()
    }
}

/// A URL without user and query; a path as it is.
fn without_credentials(data: &str) -> String {
    let Some((scheme, rest)) = data.split_once("://") else {
        return data.to_owned();
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = match host.rsplit_once('@') {
        // Azure's containers stand where others have users.
        Some((user, host)) if scheme.starts_with("abfs") && !user.contains(':') => format!("{user}@{host}"),
        Some((_, host)) => host.to_owned(),
        None => host.to_owned(),
    };
    format!("{scheme}://{host}/{path}")
}

/// Folders that are, or were, stores.
fn stores(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.join("used").exists()).collect()
}

fn bytes(store: &Path) -> u64 {
    let files = fs::read_dir(store).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

/// Whether nobody uses a store.
fn is_idle(store: &Path) -> bool {
    File::open(store.join("used")).is_ok_and(|file| file.try_lock().is_ok())
}

fn last_use(store: &Path) -> SystemTime {
    let marked = fs::metadata(store.join("used")).and_then(|file| file.modified());
    marked.unwrap_or(SystemTime::UNIX_EPOCH)
}

fn listed(store: &Path) -> Listed {
    let about = fs::read(store.join("about.json")).ok();
    let about: Option<About> = about.and_then(|text| serde_json::from_slice(&text).ok());
    let index = fs::metadata(store.join("index")).map_or(0, |file| file.len());
    let unused = last_use(store).elapsed().unwrap_or_default();
    Listed {
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

/// Makes the folder of a store and marks it as used, now and until the file is closed.
fn hold(path: &Path) -> Result<File, FeatureError> {
    let mark = path.join("used");
    for _ in 0..TRIES {
        fs::create_dir_all(path).map_err(failed("making", path))?;
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&mark)
            .map_err(failed("opening", &mark))?;
        file.lock_shared().map_err(failed("locking", &mark))?;
        // Whoever removes a store locks it before; what was opened may be gone by now.
        let same = |there: fs::Metadata| file.metadata().is_ok_and(|held| held.ino() == there.ino());
        if fs::metadata(&mark).is_ok_and(same) {
            file.set_modified(SystemTime::now())
                .map_err(failed("marking", &mark))?;
            return Ok(file);
        }
    }
    Err(FeatureError::Used {
        path: path.to_owned(),
    })
}

/// Has the folder say what it is, for people; rows speak for themselves.
fn say(path: &Path, subject: &Subject, row: &Row) -> Result<(), FeatureError> {
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

/// Removes a store that nobody uses.
fn remove(path: &Path) -> Result<(), FeatureError> {
    let mark = path.join("used");
    let file = File::open(&mark).map_err(failed("opening", &mark))?;
    if file.try_lock().is_err() {
        return Err(FeatureError::Used {
            path: path.to_owned(),
        });
    }
    // The mark goes last, so that what is left of a removal that was cut short is still a store.
    for entry in fs::read_dir(path).map_err(failed("reading", path))?.flatten() {
        if entry.path() != mark {
            fs::remove_file(entry.path()).map_err(failed("removing", &entry.path()))?;
        }
    }
    fs::remove_file(&mark).map_err(failed("removing", &mark))?;
    fs::remove_dir(path).map_err(failed("removing", path))
}
