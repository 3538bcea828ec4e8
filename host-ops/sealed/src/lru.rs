//! Size limits of folders. The least recently used entries are removed first.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// File or subfolder of a folder with a size limit. Entries are ordered by last use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Time of the last use, for example set by [`touch`](crate::touch).
    pub last_use: SystemTime,
    /// Size in the unit of the limit.
    pub size: u64,
    /// Path of the file or subfolder.
    pub path: PathBuf,
}

/// Number and total size of removed entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Number of entries.
    pub count: usize,
    /// Total size in the unit of the limit.
    pub size: u64,
}

/// Returns the files in `folder` with this extension, with the time of the last change as last use and the size in
/// bytes. A file is omitted if its attributes cannot be read, because another process may have removed it.
///
/// # Errors
/// Returns the operating system's error if the folder cannot be read.
pub fn files(folder: &Path, extension: &str) -> io::Result<Vec<Entry>> {
    let entries = fs::read_dir(folder)?.flatten();
    let files = entries.filter_map(|entry| {
        let path = entry.path();
        let metadata = entry.metadata().ok()?;
        (path.extension()? == extension).then_some(Entry {
            last_use: metadata.modified().ok()?,
            size: metadata.len(),
            path,
        })
    });
    Ok(files.collect())
}

/// Calls `remove` for the least recently used entries until the sizes of the others do not exceed `limit`. `remove`
/// returns false for an entry that is in use and remains.
///
/// # Errors
/// Returns the first error of `remove`.
pub fn evict(
    mut entries: Vec<Entry>,
    limit: u64,
    mut remove: impl FnMut(&Path) -> io::Result<bool>,
) -> io::Result<Evicted> {
    entries.sort();
    let total: u64 = entries.iter().map(|entry| entry.size).sum();
    let mut evicted = Evicted::default();
    for entry in entries {
        if total - evicted.size <= limit {
            break;
        }
        if remove(&entry.path)? {
            evicted.count += 1;
            evicted.size += entry.size;
        }
    }
    Ok(evicted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn entry(name: &str, age: u64, size: u64) -> Entry {
        Entry {
            last_use: SystemTime::UNIX_EPOCH + Duration::from_secs(100 - age),
            size,
            path: name.into(),
        }
    }

    /// Returns the names of the entries that are removed to meet `limit`, where `busy` is in use.
    fn evicted(limit: u64, busy: &str) -> Vec<PathBuf> {
        let entries = vec![entry("new", 1, 10), entry("oldest", 3, 30), entry("old", 2, 20)];
        let mut removed = Vec::new();
        let outcome = evict(entries, limit, |path| {
            let idle = path != Path::new(busy);
            removed.extend(idle.then(|| path.to_owned()));
            Ok(idle)
        });
        assert_eq!(outcome.unwrap().count, removed.len());
        removed
    }

    #[test]
    fn the_least_recently_used_entries_are_removed_first_and_no_more_than_needed() {
        assert_eq!(evicted(60, ""), [""; 0].map(PathBuf::from));
        assert_eq!(evicted(59, ""), ["oldest"].map(PathBuf::from));
        assert_eq!(evicted(29, ""), ["oldest", "old"].map(PathBuf::from));
        assert_eq!(evicted(0, ""), ["oldest", "old", "new"].map(PathBuf::from));
    }

    #[test]
    fn entries_in_use_remain_and_count() {
        assert_eq!(evicted(40, "oldest"), ["old"].map(PathBuf::from));
        assert_eq!(evicted(0, "old"), ["oldest", "new"].map(PathBuf::from));
    }

    #[test]
    fn only_files_with_the_extension_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.json"), "123").unwrap();
        fs::write(folder.path().join("a.json.part"), "1").unwrap();
        let [found] = files(folder.path(), "json").unwrap().try_into().unwrap();
        assert_eq!((found.path, found.size), (folder.path().join("a.json"), 3));
    }
}
