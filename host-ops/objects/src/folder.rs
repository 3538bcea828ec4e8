//! Lists the keys in a folder in the order of an object store.
//!
//! `LocalFileSystem` lists in no particular order, so it would read the whole tree for every page. This walk
//! descends in key order, skips folders whose keys all precede the page, and ends at the first key after the
//! page. While reading a folder, the walk only keeps the smallest names, as many as a page can contain. The folder is read
//! again if they were not enough, for example because they are empty folders.

use crate::key;
use crate::local::{DIRECTORY, LocalFolder, is_being_written};
use frostline_batching::Stop;
use frostline_tensor::SkippedNames;
use object_store::path::Path;
use rustix::fs::{Dir, DirEntry, FileType, OFlags};
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Maximum number of entries in a folder. ImageNet's largest folder has 1,300. Reading a million entries needs
/// about a second, and folders with more are slow on every file system.
pub(crate) const MOST_ENTRIES: usize = 1_000_000;

/// Number of folders on a path that keep the names of a full page. Data sets are rarely nested more deeply.
const SHALLOW: usize = 4;

/// Number of names that deeper folders keep. A key of 1,024 bytes has up to 512 folders.
const DEEP_NAMES: usize = 32;

/// Memory of a walk in bytes: names of up to 255 bytes in the folders on a path. They need 1.2 MB in the shallow
/// folders for a page of 1,000 keys, and 4.5 MB in all deeper ones.
pub(crate) const MEMORY: u64 = 8 << 20;

/// Number of reported invalid names per folder, the limit of [`SkippedNames`].
const REPORTED: usize = 5;

/// Page of keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) keys: Vec<String>,
    /// True if more keys follow.
    pub(crate) more: bool,
    /// Skipped entries. All those of a folder are counted on the page with the first key in or after it.
    pub(crate) skipped: SkippedNames,
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
        limit,
        stop,
    };
    let mut way: Vec<Folder> = Vec::new();
    let mut keys = Vec::new();
    let mut skipped = SkippedNames::default();
    let mut after_last = SkippedNames::default();
    way.extend(walk.enter(String::new(), &[], &mut after_last)?);
    while let Some(folder) = way.last_mut() {
        stop.check()?;
        let Some(FolderEntry { name, is_folder }) = folder.entries.pop() else {
            if !walk.read_on(folder)? {
                way.pop();
            }
            continue;
        };
        let key = format!("{}{name}", folder.key);
        if is_folder {
            let entered = walk.enter(key, &way, &mut after_last)?;
            way.extend(entered);
        } else if keys.len() == limit {
            let more = true;
            return Ok(Keys { keys, more, skipped });
        } else {
            skipped.extend(std::mem::take(&mut after_last));
            keys.push(key);
        }
    }
    skipped.extend(after_last);
    let more = false;
    Ok(Keys { keys, more, skipped })
}

struct Walk<'a> {
    root: &'a LocalFolder,
    prefix: &'a Path,
    after: &'a str,
    limit: usize,
    stop: &'a Stop,
}

/// Folder on the path to the current entry.
struct Folder {
    id: Id,
    /// Prefix of the keys in this folder: empty, or with a trailing `/`.
    key: String,
    /// The next entries to visit, in reverse order.
    entries: Vec<FolderEntry>,
    /// Maximum number of `entries`.
    most: usize,
    /// Name after which the folder must be read again, or `None` if no entries follow.
    cut_at: Option<String>,
}

/// Identifies a folder regardless of the links that lead to it.
#[derive(PartialEq, Eq)]
struct Id {
    device: u64,
    inode: u64,
}

/// Entry of a folder, ordered by key.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct FolderEntry {
    /// Name in the folder; that of a folder has a trailing `/`.
    name: String,
    is_folder: bool,
}

/// Type of an entry.
enum Found {
    File,
    Folder,
    /// Invalid key, broken link or file being written.
    Invalid,
    /// Link out of the root, with the target.
    Outward(String),
    /// Socket, pipe or device.
    Other,
}

/// Skipped entries of a folder.
#[derive(Default)]
struct FolderSkips {
    invalid: u64,
    /// The smallest invalid names.
    names: BinaryHeap<String>,
    links: u64,
    /// The link with the smallest name, and the target.
    first_link: Option<(String, String)>,
}

impl FolderSkips {
    fn add_name(&mut self, key: String) {
        self.invalid += 1;
        self.names.push(key);
        if self.names.len() > REPORTED {
            self.names.pop();
        }
    }

    fn add_link(&mut self, key: String, target: String) {
        self.links += 1;
        if self.first_link.as_ref().is_none_or(|(first, _)| key < *first) {
            self.first_link = Some((key, target));
        }
    }

    fn count_into(self, skipped: &mut SkippedNames) {
        let mut own = SkippedNames::default();
        self.names.into_sorted_vec().iter().for_each(|name| own.add(name));
        own.count = self.invalid;
        if let Some((key, target)) = &self.first_link {
            own.links.add(key, target);
        }
        own.links.count = self.links;
        skipped.extend(own);
    }
}

impl Walk<'_> {
    /// Opens `key` below the prefix.
    fn open(&self, key: &str, flags: OFlags) -> io::Result<OwnedFd> {
        self.root.open(self.path(key), flags)
    }

    fn path(&self, key: &str) -> PathBuf {
        let parts = [self.prefix.as_ref(), key.trim_end_matches('/')];
        parts.into_iter().filter(|part| !part.is_empty()).collect()
    }

    /// Opens a folder and reads its first entries. Returns `None` if the folder is already on `way`, or was
    /// removed since its parent was read. Skipped entries are counted, unless a page up to `after` did so.
    fn enter(
        &self,
        key: String,
        way: &[Folder],
        skipped: &mut SkippedNames,
    ) -> Result<Option<Folder>, WalkError> {
        let Some((opened, id)) = self.open_folder(&key)? else {
            return if key.is_empty() {
                Err(WalkError::NoSuchRoot)
            } else {
                Ok(None)
            };
        };
        if way.iter().any(|above| above.id == id) {
            return Ok(None);
        }
        let mut folder = Folder {
            id,
            entries: Vec::new(),
            most: if way.len() < SHALLOW {
                self.limit + 1
            } else {
                DEEP_NAMES
            },
            cut_at: None,
            key,
        };
        let mut skips = FolderSkips::default();
        let is_new = self.after.is_empty() || !self.after.starts_with(&folder.key);
        self.read(&mut folder, opened, is_new.then_some(&mut skips))?;
        skips.count_into(skipped);
        Ok(Some(folder))
    }

    /// Reads the next entries of a folder. Returns false at the end, or if the folder was removed or replaced.
    fn read_on(&self, folder: &mut Folder) -> Result<bool, WalkError> {
        if folder.cut_at.is_none() {
            return Ok(false);
        }
        match self.open_folder(&folder.key)? {
            Some((opened, id)) if id == folder.id => {
                self.read(folder, opened, None)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Opens a folder, or returns `None` if it does not exist.
    fn open_folder(&self, key: &str) -> Result<Option<(OwnedFd, Id)>, WalkError> {
        let opened = match self.open(key, DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&opened)?;
        let id = Id {
            device: stat.st_dev,
            inode: stat.st_ino,
        };
        Ok(Some((opened, id)))
    }

    /// Reads the next entries of a folder, and counts the skipped ones into `skips` if given.
    fn read(
        &self,
        folder: &mut Folder,
        opened: OwnedFd,
        mut skips: Option<&mut FolderSkips>,
    ) -> Result<(), WalkError> {
        let passed = folder.cut_at.take();
        let mut kept: BinaryHeap<FolderEntry> = BinaryHeap::new();
        let mut cut = false;
        for (number, item) in Dir::new(opened)?.enumerate() {
            self.stop.check()?;
            if number > MOST_ENTRIES {
                return Err(WalkError::TooMany(folder.key.trim_end_matches('/').to_owned()));
            }
            let item = item?;
            let name = item.file_name().to_string_lossy();
            let is_beyond = kept.len() == folder.most && kept.peek().is_some_and(|last| *name > *last.name);
            if matches!(&*name, "." | "..") || (is_beyond && skips.is_none()) {
                cut |= is_beyond;
                continue;
            }
            let key = format!("{}{name}", folder.key);
            let entry = match self.classify(&key, &item) {
                Found::File => FolderEntry {
                    name: name.into_owned(),
                    is_folder: false,
                },
                Found::Folder => FolderEntry {
                    name: format!("{name}/"),
                    is_folder: true,
                },
                Found::Invalid => {
                    if let Some(skips) = &mut skips {
                        skips.add_name(key);
                    }
                    continue;
                }
                Found::Outward(target) => {
                    if let Some(skips) = &mut skips {
                        skips.add_link(key, target);
                    }
                    continue;
                }
                Found::Other => continue,
            };
            let is_next = match &passed {
                Some(passed) => entry.name > *passed,
                None => self.may_have_keys(&folder.key, &entry),
            };
            if is_next {
                kept.push(entry);
            }
            if kept.len() > folder.most {
                kept.pop();
                cut = true;
            }
        }
        folder.cut_at = kept.peek().filter(|_| cut).map(|last| last.name.clone());
        folder.entries = kept.into_sorted_vec();
        folder.entries.reverse();
        Ok(())
    }

    /// Returns true if the entry is, or can contain, a key after [`Walk::after`].
    fn may_have_keys(&self, folder: &str, entry: &FolderEntry) -> bool {
        let key = format!("{folder}{}", entry.name);
        (entry.is_folder && self.after.starts_with(&key)) || key.as_str() > self.after
    }

    fn classify(&self, key: &str, item: &DirEntry) -> Found {
        let name = item.file_name().to_string_lossy();
        // The folder's part of the key was checked before.
        let is_key = key.len() <= key::MAX_KEY_LENGTH && key::checked(&name).is_ok();
        if item.file_name().to_str().is_err() || !is_key {
            return Found::Invalid;
        }
        match self.resolve(key, item.file_type()) {
            None => match self.root.outward_target(self.path(key)) {
                Some(target) => Found::Outward(target),
                None => Found::Invalid,
            },
            Some(FileType::Directory) => Found::Folder,
            Some(FileType::RegularFile) if is_being_written(&name) => Found::Invalid,
            Some(FileType::RegularFile) => Found::File,
            Some(_) => Found::Other,
        }
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
        assert!(error.to_string().contains("deadline of 10ms"), "{error}");
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
            let mut seen = Vec::new();
            let mut after = None;
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
        assert_eq!((found.skipped.count, found.skipped.links.count), (0, 2));
        let first = format!("out.jpg -> {}", outside.display());
        assert_eq!(found.skipped.links.first, first);
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
        assert_eq!(found.skipped.names, ["line\\nbreak.jpg", "photo#12"]);
        assert_eq!(found.skipped.count, 2);
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
        assert_eq!(found.skipped.names, ["f", "g"]);
        assert_eq!(found.skipped.links.count, 4, "b to e");
    }

    #[test]
    fn a_folder_is_read_on_after_the_names_that_were_kept() {
        // Empty folders and a deep path: both keep fewer names than the folders have.
        let deep = "d/".repeat(SHALLOW);
        let mut files: Vec<String> = (0..3 * DEEP_NAMES)
            .map(|number| format!("{deep}{number:03}"))
            .collect();
        files.extend(["y".to_owned(), "z/0".to_owned()]);
        let (_folder, root) = tree(&files.iter().map(String::as_str).collect::<Vec<_>>());
        for number in 0..20 {
            std::fs::create_dir(root.join(format!("e{number}"))).unwrap();
        }
        for limit in [1, 2, 50, 1000] {
            let mut seen = Vec::new();
            let mut after = None;
            loop {
                let found = page(&local(&root), &Path::default(), after.as_deref(), limit).unwrap();
                assert!(
                    found.keys.len() == limit || !found.more,
                    "{} keys",
                    found.keys.len()
                );
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
    fn a_folder_keeps_the_names_of_a_page_only() {
        let files: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
        let (_folder, root) = tree(&files.iter().map(String::as_str).collect::<Vec<_>>());
        let root = local(&root);
        let walk = Walk {
            root: &root,
            prefix: &Path::default(),
            after: "",
            limit: 7,
            stop: &Stop::after(std::time::Duration::from_secs(60)),
        };
        let mut folder = walk
            .enter(String::new(), &[], &mut SkippedNames::default())
            .unwrap()
            .unwrap();
        assert_eq!((folder.entries.len(), folder.cut_at.as_deref()), (8, Some("007")));
        folder.entries.clear();
        assert!(walk.read_on(&mut folder).unwrap());
        assert_eq!(folder.entries.last().unwrap().name, "008");
    }

    #[test]
    fn skipped_entries_are_counted_once_over_all_pages() {
        let (_folder, root) = tree(&["a\n/1.jpg", "b\n", "c", "d\n", "e", "f\n"]);
        for limit in 1..4 {
            let mut left_out = 0;
            let mut after = None;
            loop {
                let found = page(&local(&root), &Path::default(), after.as_deref(), limit).unwrap();
                left_out += found.skipped.count;
                after = found.keys.last().cloned();
                if !found.more {
                    break;
                }
            }
            assert_eq!(left_out, 4, "pages of {limit}");
        }
    }
}
