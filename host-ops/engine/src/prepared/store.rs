use frostline_sealed::{PrivateFolder, TAG, lru};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tempfile::TempDir;

/// File name of the prepared network.
pub(crate) const NETWORK: &str = "model.onnx";

/// File name of the weights. The file is missing if the network has no large weights.
pub(crate) const WEIGHTS: &str = "weights";

/// File name of the keyed hash over both files.
const SEAL: &str = "seal";

/// Prefixes of temporary folders. They contain unfinished stages and links for lanes, and are deleted when
/// the store is opened.
const PASSING: char = '.';
const UNFINISHED: &str = ".making-";
const OF_LANE: &str = ".lane-";

/// Folders of prepared stages. If they exceed their size limit, the least recently used ones are removed.
pub(crate) struct Store {
    folder: PrivateFolder,
    most_bytes: u64,
    /// Verified stages with the file state at that time.
    verified: Mutex<HashMap<String, Arc<FileState>>>,
}

/// Device, inode, length and modification time of files, which change when a file is written. Link counts and
/// change times are ignored, because lanes receive hard links.
#[derive(Debug, PartialEq, Eq)]
struct FileState(Vec<(u64, u64, u64, i64, i64)>);

/// A prepared stage that is protected from eviction.
#[derive(Debug)]
pub(crate) struct StageGuard {
    path: PathBuf,
    _used: Arc<FileState>,
}

impl StageGuard {
    #[cfg(test)]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Folder with links to the stages that a lane's process may open. Other files of the host are not accessible
/// to the process.
pub(crate) struct LaneFolder(TempDir);

/// A prepared stage in a lane's folder. Dropping this removes the links.
pub(crate) struct Loan {
    links: Vec<PathBuf>,
    lent: StageGuard,
}

impl LaneFolder {
    /// Creates a folder next to the prepared stages in `stages`.
    pub(crate) fn make(stages: &Path) -> io::Result<Self> {
        // The process has another working directory, so it needs an absolute path.
        let stages = stages.canonicalize()?;
        let folder = tempfile::Builder::new().prefix(OF_LANE).tempdir_in(stages)?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Creates links to the files of a prepared stage under the same names.
    pub(crate) fn lend(&self, lent: StageGuard) -> io::Result<Loan> {
        let mut loan = Loan {
            links: Vec::new(),
            lent,
        };
        for file in [NETWORK, WEIGHTS] {
            let link = self.path().join(file);
            if existing(fs::hard_link(loan.lent.path.join(file), &link))?.is_some() {
                loan.links.push(link);
            }
        }
        Ok(loan)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // The lane's process has already opened the files that it uses. If the process ended, its folder is
        // removed as well.
        self.links.iter().for_each(|link| drop(fs::remove_file(link)));
    }
}

impl Store {
    pub(super) fn open(path: &Path, most_bytes: u64) -> io::Result<Self> {
        let folder = PrivateFolder::open(path)?;
        for entry in fs::read_dir(path)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PASSING) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(Self {
            folder,
            most_bytes,
            verified: Mutex::default(),
        })
    }

    /// Returns the stage called `name` if it exists and this host wrote it.
    pub(super) fn find(&self, name: &str) -> Option<StageGuard> {
        let path = self.folder.path().join(name);
        path.exists().then_some(())?;
        match self.check(name, &path) {
            Ok(used) => {
                drop(frostline_sealed::touch(&path.join(SEAL)));
                Some(StageGuard { path, _used: used })
            }
            Err(error) => {
                let folder = path.display();
                tracing::warn!(%folder, %error, "a prepared stage is corrupt or from another host; preparing it again");
                self.verified.lock().remove(name);
                drop(fs::remove_dir_all(&path));
                None
            }
        }
    }

    fn check(&self, name: &str, path: &Path) -> io::Result<Arc<FileState>> {
        let marks = file_state(path)?;
        let known = self.verified.lock().get(name).cloned();
        if let Some(known) = known.filter(|known| **known == marks) {
            return Ok(known);
        }
        let tag = fs::read(path.join(SEAL))?;
        if !self.hash(name, path)?.is(&tag) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the keyed hash does not match",
            ));
        }
        let marks = Arc::new(marks);
        self.verified.lock().insert(name.to_owned(), Arc::clone(&marks));
        Ok(marks)
    }

    /// Creates a folder in which the stage `name` can be prepared.
    pub(super) fn create_folder(&self, name: &str) -> io::Result<TempDir> {
        tempfile::Builder::new()
            .prefix(&format!("{UNFINISHED}{name}-"))
            .tempdir_in(self.folder.path())
    }

    /// Stores a prepared stage and evicts others if the size limit is exceeded.
    pub(super) fn finish(&self, name: &str, prepared: TempDir) -> io::Result<StageGuard> {
        let bytes = size(prepared.path())?;
        if bytes > self.most_bytes {
            let text = format!(
                "the prepared stage has {bytes} bytes, but the limit for all stages is {}",
                self.most_bytes
            );
            return Err(io::Error::other(text));
        }
        let tag: [u8; TAG] = self.hash(name, prepared.path())?.tag();
        fs::write(prepared.path().join(SEAL), tag)?;
        let path = self.folder.path().join(name);
        fs::rename(prepared.path(), &path)?;
        let used = Arc::new(file_state(&path)?);
        self.verified.lock().insert(name.to_owned(), Arc::clone(&used));
        // Stages that a lane is opening remain.
        lru::evict(self.entries()?, self.most_bytes, |path| self.remove(path))?;
        Ok(StageGuard { path, _used: used })
    }

    /// Removes all stages for whose names `keep` returns false, except stages that a lane is opening.
    pub(super) fn retain(&self, keep: impl Fn(&str) -> bool) -> io::Result<()> {
        for entry in self.entries()? {
            if !keep(&name_of(&entry.path)) {
                self.remove(&entry.path)?;
            }
        }
        Ok(())
    }

    /// Removes a stage. Returns false if a lane is opening it.
    fn remove(&self, path: &Path) -> io::Result<bool> {
        let name = name_of(path);
        let mut right = self.verified.lock();
        if right.get(&*name).is_some_and(|used| Arc::strong_count(used) > 1) {
            return Ok(false);
        }
        right.remove(&*name);
        fs::remove_dir_all(path)?;
        Ok(true)
    }

    /// Returns the folders of the stages.
    fn entries(&self) -> io::Result<Vec<lru::Entry>> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(self.folder.path())? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() && !name_of(&path).starts_with(PASSING) {
                let used = fs::metadata(path.join(SEAL)).and_then(|seal| seal.modified());
                kept.push(lru::Entry {
                    last_use: used.unwrap_or(SystemTime::UNIX_EPOCH),
                    size: size(&path)?,
                    path,
                });
            }
        }
        Ok(kept)
    }

    /// Computes the keyed hash of the stage `name` from the files in `path`.
    fn hash(&self, name: &str, path: &Path) -> io::Result<frostline_sealed::KeyedHash> {
        let mut hash = self.folder.hash(name)?;
        let mut buffer = vec![0; 1 << 20];
        for file in [NETWORK, WEIGHTS] {
            let Some(mut file) = existing(File::open(path.join(file)))? else {
                continue;
            };
            hash.update(&file.metadata()?.len().to_le_bytes());
            loop {
                let count = file.read(&mut buffer)?;
                match buffer.get(..count) {
                    None | Some([]) => break,
                    Some(bytes) => hash.update(bytes),
                }
            }
        }
        Ok(hash)
    }
}

fn file_state(path: &Path) -> io::Result<FileState> {
    let mut marks = Vec::new();
    for file in [NETWORK, WEIGHTS] {
        if let Some(file) = existing(fs::symlink_metadata(path.join(file)))? {
            marks.push((
                file.dev(),
                file.ino(),
                file.len(),
                file.mtime(),
                file.mtime_nsec(),
            ));
        }
    }
    Ok(FileState(marks))
}

fn name_of(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn size(path: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

fn existing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}
