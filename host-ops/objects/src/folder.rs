//! Lists the keys in a folder in the order of an object store.
//!
//! `LocalFileSystem` lists in no particular order, so it would read the whole tree for every page. This walk
//! descends in key order, skips folders whose keys all precede the page, ends at the first key after the
//! page, and keeps only the entries of the current folder and its ancestors in memory.

use crate::key;
use crate::local::{DIRECTORY, LocalFolder, is_being_written};
use frostline_batching::Stop;
use frostline_tensor::SkippedNames;
use object_store::path::Path;
use rustix::fs::{Dir, DirEntry, FileType, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Maximum number of entries in a folder, at some 150 bytes each during the walk. ImageNet's largest folder
/// has 1,300. Folders with over a million files are slow on every file system. Without the limit, a listing
/// could use all memory on the host.
pub(crate) const MOST_ENTRIES: usize = 1_000_000;

/// Page of keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) keys: Vec<String>,
    /// True if more keys follow.
    pub(crate) more: bool,
    /// Skipped entries in ascending order. The last page includes entries after the last key.
    pub(crate) skipped: Vec<SkippedEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SkippedEntry {
    pub(crate) name: String,
    pub(crate) why: SkipReason,
}

/// Reason for skipping an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SkipReason {
    /// The name is not a valid key, marks a file that is being written, or is a broken link.
    InvalidName,
    /// The link target is outside of the root. The value is empty except for the first such link on a page.
    OutwardLink(String),
}

impl SkippedEntry {
    /// Creates an entry with an invalid name.
    pub(crate) fn name(name: String) -> Self {
        let why = SkipReason::InvalidName;
        Self { name, why }
    }

    pub(crate) fn count_into(&self, left_out: &mut SkippedNames) {
        match &self.why {
            SkipReason::InvalidName => left_out.add(&self.name),
            SkipReason::OutwardLink(target) => left_out.links.add(&self.name, target),
        }
    }
}

#[derive(Debug)]
pub(crate) enum WalkError {
    Io(io::Error),
    /// The folder itself is missing.
    NoSuchRoot,
    /// The folder with this key exceeds [`MOST_ENTRIES`].
    TooMany(String),
}

impl<E: Into<io::Error>> From<E> for WalkError {
    fn from(error: E) -> Self {
        Self::Io(error.into())
    }
}

/// Returns the first `limit` keys after `after` of the files below `prefix`, ascending by bytes.
///
/// Links are followed if they stay below the root and do not lead back to a folder that contains them.
/// Skipped are links out of the root, names that are not valid keys (not UTF-8, control characters), and
/// files that look like files being written. The walk checks `stop` for each entry.
pub(crate) fn page(
    root: &LocalFolder,
    prefix: &Path,
    after: Option<&str>,
    limit: usize,
    stop: &Stop,
) -> Result<Keys, WalkError> {
    let walk = Walk {
        root,
        prefix,
        after: after.unwrap_or_default(),
        stop,
    };
    let mut way: Vec<Folder> = Vec::new();
    way.extend(walk.enter("", &[])?);
    let (mut keys, mut told) = (Vec::new(), false);
    let (mut skipped, mut after_last) = (Vec::new(), Vec::new());
    while let Some(folder) = way.last_mut() {
        stop.check()?;
        let Some(entry) = folder.entries.pop() else {
            way.pop();
            continue;
        };
        match entry.kind {
            Kind::Folder => {
                let entered = walk.enter(&entry.key, &way)?;
                way.extend(entered);
            }
            Kind::Odd => after_last.push(SkippedEntry::name(entry.key)),
            Kind::Outward => {
                // Storing a million link targets would waste memory.
                let target = (!told).then(|| walk.outward_target(&entry.key)).flatten();
                told = true;
                after_last.push(SkippedEntry {
                    name: entry.key,
                    why: SkipReason::OutwardLink(target.unwrap_or_default()),
                });
            }
            Kind::File if keys.len() == limit => {
                let more = true;
                return Ok(Keys { keys, more, skipped });
            }
            Kind::File => {
                skipped.append(&mut after_last);
                keys.push(entry.key);
            }
        }
    }
    skipped.append(&mut after_last);
    let more = false;
    Ok(Keys { keys, more, skipped })
}

struct Walk<'a> {
    root: &'a LocalFolder,
    prefix: &'a Path,
    after: &'a str,
    stop: &'a Stop,
}

struct Folder {
    id: Id,
    /// Entries still to visit, in reverse order.
    entries: Vec<Entry>,
}

/// Identifies a folder regardless of the links that lead to it.
#[derive(PartialEq, Eq)]
struct Id {
    device: u64,
    inode: u64,
}

struct Entry {
    /// File key, or folder prefix with a trailing `/`.
    key: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    /// Invalid key, broken link or file being written.
    Odd,
    /// A link with a target outside of the root.
    Outward,
}

impl Walk<'_> {
    /// Opens `key` below the prefix.
    fn open(&self, key: &str, flags: OFlags) -> io::Result<OwnedFd> {
        self.root.open(self.path(key), flags)
    }

    fn outward_target(&self, key: &str) -> Option<String> {
        self.root.outward_target(self.path(key))
    }

    fn path(&self, key: &str) -> PathBuf {
        let parts = [self.prefix.as_ref(), key.trim_end_matches('/')];
        parts.into_iter().filter(|part| !part.is_empty()).collect()
    }

    /// Opens a folder and reads its entries. Returns `None` if the folder is already on `way`, or was removed
    /// since its parent was read.
    fn enter(&self, key: &str, way: &[Folder]) -> Result<Option<Folder>, WalkError> {
        let opened = match self.open(key, DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && key.is_empty() => {
                return Err(WalkError::NoSuchRoot);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&opened)?;
        let id = Id {
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        if way.iter().any(|above| above.id == id) {
            return Ok(None);
        }
        let mut entries = Vec::new();
        for item in Dir::new(opened)? {
            self.stop.check()?;
            entries.extend(self.entry(key, &item?));
            if entries.len() > MOST_ENTRIES {
                return Err(WalkError::TooMany(key.trim_end_matches('/').to_owned()));
            }
        }
        entries.sort_unstable_by(|a, b| b.key.cmp(&a.key));
        Ok(Some(Folder { id, entries }))
    }

    /// Classifies an entry. Returns `None` for sockets, pipes and devices, and if no key of the entry can be
    /// on the page.
    fn entry(&self, prefix: &str, item: &DirEntry) -> Option<Entry> {
        let name = item.file_name().to_string_lossy();
        if matches!(&*name, "." | "..") {
            return None;
        }
        let key = format!("{prefix}{name}");
        let fine = item.file_name().to_str().is_ok() && key::checked(&key).is_ok();
        let kind = match self.resolve(&key, item.file_type()).filter(|_| fine) {
            None if fine && self.outward_target(&key).is_some() => Kind::Outward,
            None => Kind::Odd,
            Some(FileType::Directory) => Kind::Folder,
            Some(FileType::RegularFile) if is_being_written(&name) => Kind::Odd,
            Some(FileType::RegularFile) => Kind::File,
            // Socket, pipe or device.
            Some(_) => return None,
        };
        let key = if kind == Kind::Folder { key + "/" } else { key };
        let inside = kind == Kind::Folder && self.after.starts_with(&key);
        (inside || key.as_str() > self.after).then_some(Entry { key, kind })
    }

    /// Returns the type of an entry after following links. Returns `None` if they leave the root or are
    /// broken.
    fn resolve(&self, key: &str, kind: FileType) -> Option<FileType> {
        if !matches!(kind, FileType::Symlink | FileType::Unknown) {
            return Some(kind);
        }
        let opened = self.open(key, OFlags::PATH).ok()?;
        let stat = rustix::fs::fstat(&opened).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn local(root: &std::path::Path) -> LocalFolder {
        LocalFolder::new(root.to_owned())
    }

    fn page(root: &LocalFolder, prefix: &Path, after: Option<&str>, limit: usize) -> Result<Keys, WalkError> {
        let stop = Stop::after(std::time::Duration::from_secs(600));
        super::page(root, prefix, after, limit, &stop)
    }

    #[test]
    fn an_endless_walk_ends_with_its_deadline() {
        let (_folder, root) = tree(&["00/last"]);
        // Each folder doubles the number of ways to the last one: 2^60 ways without a file.
        for number in 1..60 {
            let folder = root.join(format!("{number:02}"));
            std::fs::create_dir(&folder).unwrap();
            for name in ["a", "b"] {
                symlink(root.join(format!("{:02}", number - 1)), folder.join(name)).unwrap();
            }
        }
        std::fs::remove_file(root.join("00/last")).unwrap();
        let stop = Stop::after(std::time::Duration::from_millis(10));
        let ended = super::page(&local(&root), &Path::default(), None, 1, &stop);
        let Err(WalkError::Io(error)) = ended else {
            panic!("{ended:?}")
        };
        assert!(error.to_string().contains("did not finish"), "{error}");
    }

    fn tree(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("root");
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        (folder, root)
    }

    #[test]
    fn pages_of_any_size_join_to_the_sorted_keys() {
        // '-' and '.' sort before '/', '0' after it: folders must be ordered as their files' keys are.
        let mut files = [
            "a/1", "a/b/2", "a-b/3", "a.jpg", "a0", "b/x/y/z", "b/x!", "c d/ü", "z",
        ];
        let (_folder, root) = tree(&files);
        files.sort_unstable();
        for limit in 1..=files.len() + 1 {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let found = page(&local(&root), &Path::default(), after.as_deref(), limit).unwrap();
                seen.extend(found.keys);
                if !found.more {
                    break;
                }
                after = seen.last().cloned();
            }
            assert_eq!(seen, files, "pages of {limit}");
        }
    }

    #[test]
    fn links_stay_inside_and_end() {
        let (folder, root) = tree(&["real/1.jpg", "other/2.jpg"]);
        let outside = folder.path().join("outside.jpg");
        std::fs::write(&outside, "secret").unwrap();
        symlink(&outside, root.join("out.jpg")).unwrap();
        symlink(folder.path(), root.join("up")).unwrap();
        symlink(root.join("real"), root.join("alias")).unwrap();
        symlink(root.join("other"), root.join("real/across")).unwrap();
        symlink(root.join("real"), root.join("other/back")).unwrap();
        let found = page(&local(&root), &Path::default(), None, 100).unwrap();
        let outward = |name: &str, target: &str| SkippedEntry {
            name: name.to_owned(),
            why: SkipReason::OutwardLink(target.to_owned()),
        };
        // Only the first link has a target.
        assert_eq!(
            found.skipped,
            [outward("out.jpg", outside.to_str().unwrap()), outward("up", "")]
        );
        let keys = found.keys;
        let expected = [
            "alias/1.jpg",
            "alias/across/2.jpg",
            "other/2.jpg",
            "other/back/1.jpg",
            "real/1.jpg",
            "real/across/2.jpg",
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn names_that_cannot_be_read_are_left_out_and_named() {
        let (_folder, root) = tree(&["a.jpg", "b#x.jpg", "c#1/d.jpg", "line\nbreak.jpg", "photo#12"]);
        let found = page(&local(&root), &Path::default(), None, 100).unwrap();
        assert_eq!(found.keys, ["a.jpg", "b#x.jpg", "c#1/d.jpg"]);
        let odd = ["line\nbreak.jpg", "photo#12"].map(|name| SkippedEntry::name(name.to_owned()));
        assert_eq!(found.skipped, odd);
    }

    #[test]
    fn outward_links_do_not_reveal_whether_the_target_exists() {
        let (folder, root) = tree(&["a.jpg"]);
        let links = [
            ("b", folder.path().join("nothing")),
            ("c", PathBuf::from("../nothing")),
            ("d", folder.path().to_owned()),
            ("e", root.join("../nothing")),
            ("f", PathBuf::from("nothing")),
            ("g", root.join("nothing")),
            ("h", root.join("a.jpg")),
        ];
        for (name, target) in links {
            symlink(target, root.join(name)).unwrap();
        }
        let found = page(&local(&root), &Path::default(), None, 100).unwrap();
        assert_eq!(found.keys, ["a.jpg", "h"]);
        let (outward, nowhere): (Vec<SkippedEntry>, Vec<SkippedEntry>) = found
            .skipped
            .into_iter()
            .partition(|odd| matches!(odd.why, SkipReason::OutwardLink(_)));
        let names = |odd: Vec<SkippedEntry>| odd.into_iter().map(|odd| odd.name).collect::<Vec<_>>();
        assert_eq!(names(outward), ["b", "c", "d", "e"]);
        assert_eq!(names(nowhere), ["f", "g"]);
    }

    #[test]
    fn skipped_entries_are_counted_once_over_all_pages() {
        let (_folder, root) = tree(&["a\n/1.jpg", "b\n", "c", "d\n", "e", "f\n"]);
        for limit in 1..4 {
            let (mut left_out, mut after) = (0, None);
            loop {
                let found = page(&local(&root), &Path::default(), after.as_deref(), limit).unwrap();
                left_out += found.skipped.len();
                after = found.keys.last().cloned();
                if !found.more {
                    break;
                }
            }
            assert_eq!(left_out, 4, "pages of {limit}");
        }
    }
}
