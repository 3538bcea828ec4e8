//! A folder as a list of keys, in the order an object store has.
//!
//! `LocalFileSystem` lists in no order, so a page of it would read the whole tree. This walk goes down the tree in the order of
//! keys, enters only folders that hold keys of the page, and keeps only the folders on its way in memory.

use crate::key;
use crate::local::{DIRECTORY, LocalFolder, is_being_written};
use frostline_tensor::LeftOut;
use object_store::path::Path;
use rustix::fs::{Dir, DirEntry, FileType, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Entries one folder may hold, at some 150 bytes each while it is walked. ImageNet's largest folder has 1,300; a folder beyond
/// a million files is slow on every file system, and without a bound one listing could take a host's memory.
pub(crate) const MOST_ENTRIES: usize = 1_000_000;

/// The keys of one page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) keys: Vec<String>,
    /// Whether there are more after them.
    pub(crate) more: bool,
    /// What was left out before the last of them, or before the end; ascending.
    pub(crate) odd: Vec<SkippedEntry>,
}

/// What a listing leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SkippedEntry {
    pub(crate) name: String,
    pub(crate) why: SkipReason,
}

/// Why a listing leaves an entry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SkipReason {
    /// The name is no key, or a link that leads nowhere.
    InvalidName,
    /// A link out of the root, and what it says; of a page only the first says it.
    OutwardLink(String),
}

impl SkippedEntry {
    /// A name that is no key.
    pub(crate) fn name(name: String) -> Self {
        let why = SkipReason::InvalidName;
        Self { name, why }
    }

    pub(crate) fn count_into(&self, left_out: &mut LeftOut) {
        match &self.why {
            SkipReason::InvalidName => left_out.add(&self.name),
            SkipReason::OutwardLink(target) => left_out.links.add(&self.name, target),
        }
    }
}

/// Why the tree could not be walked.
#[derive(Debug)]
pub(crate) enum WalkError {
    Io(io::Error),
    /// The folder itself is missing.
    NoSuchRoot,
    /// A folder with more than [`MOST_ENTRIES`]: its key.
    TooMany(String),
}

impl<E: Into<io::Error>> From<E> for WalkError {
    fn from(error: E) -> Self {
        Self::Io(error.into())
    }
}

/// The first `limit` keys after `after` of the files below `prefix`, ascending by their bytes.
///
/// Links are followed where they stay below the root and do not lead back to a folder they are in; those that leave it, names
/// that are no keys (not UTF-8, control characters) and files that cannot be told from one that is being written are left out.
pub(crate) fn page(
    root: &LocalFolder,
    prefix: &Path,
    after: Option<&str>,
    limit: usize,
) -> Result<Keys, WalkError> {
    let walk = Walk {
        root,
        prefix,
        after: after.unwrap_or_default(),
    };
    let mut way: Vec<Folder> = Vec::new();
    way.extend(walk.enter("", &[])?);
    let (mut keys, mut told) = (Vec::new(), false);
    let (mut odd, mut after_last) = (Vec::new(), Vec::new());
    while let Some(folder) = way.last_mut() {
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
                // Targets of a million links would take much memory.
                let target = if told {
                    None
                } else {
                    walk.outward_target(&entry.key)
                };
                told = true;
                after_last.push(SkippedEntry {
                    name: entry.key,
                    why: SkipReason::OutwardLink(target.unwrap_or_default()),
                });
            }
            Kind::File if keys.len() == limit => {
                let more = true;
                return Ok(Keys { keys, more, odd });
            }
            Kind::File => {
                odd.append(&mut after_last);
                keys.push(entry.key);
            }
        }
    }
    odd.append(&mut after_last);
    let more = false;
    Ok(Keys { keys, more, odd })
}

struct Walk<'a> {
    root: &'a LocalFolder,
    prefix: &'a Path,
    after: &'a str,
}

struct Folder {
    id: Id,
    /// What is still to visit, last first.
    entries: Vec<Entry>,
}

/// Tells a folder from all others, by whatever links it was reached.
#[derive(PartialEq, Eq)]
struct Id {
    device: u64,
    inode: u64,
}

struct Entry {
    /// The key of a file, or what the keys of a folder's files start with (it ends with `/`).
    key: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    /// No key, or a link to nothing.
    Odd,
    /// A link out of the root.
    Outward,
}

impl Walk<'_> {
    /// Opens what lies at `key` below the prefix.
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

    /// The folder, unless it is one of those on the way to it, or was removed since its parent was read.
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
            entries.extend(self.entry(key, &item?));
            if entries.len() > MOST_ENTRIES {
                return Err(WalkError::TooMany(key.trim_end_matches('/').to_owned()));
            }
        }
        entries.sort_unstable_by(|a, b| b.key.cmp(&a.key));
        Ok(Some(Folder { id, entries }))
    }

    /// The entry, unless none of its keys can be on the page.
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
            // A socket, a pipe, a device.
            Some(_) => return None,
        };
        let key = if kind == Kind::Folder { key + "/" } else { key };
        let inside = kind == Kind::Folder && self.after.starts_with(&key);
        (inside || key.as_str() > self.after).then_some(Entry { key, kind })
    }

    /// What an entry is once links are followed; none if they leave the root or end nowhere.
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
        // The first alone says where it leads.
        assert_eq!(
            found.odd,
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
        assert_eq!(found.odd, odd);
    }

    #[test]
    fn whether_a_link_leads_out_says_nothing_of_what_lies_there() {
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
            .odd
            .into_iter()
            .partition(|odd| matches!(odd.why, SkipReason::OutwardLink(_)));
        let names = |odd: Vec<SkippedEntry>| odd.into_iter().map(|odd| odd.name).collect::<Vec<_>>();
        assert_eq!(names(outward), ["b", "c", "d", "e"]);
        assert_eq!(names(nowhere), ["f", "g"]);
    }

    #[test]
    fn what_is_left_out_is_counted_once_over_all_pages() {
        let (_folder, root) = tree(&["a\n/1.jpg", "b\n", "c", "d\n", "e", "f\n"]);
        for limit in 1..4 {
            let (mut left_out, mut after) = (0, None);
            loop {
                let found = page(&local(&root), &Path::default(), after.as_deref(), limit).unwrap();
                left_out += found.odd.len();
                after = found.keys.last().cloned();
                if !found.more {
                    break;
                }
            }
            assert_eq!(left_out, 4, "pages of {limit}");
        }
    }
}
