//! A folder as a list of keys, in the order an object store has.
//!
//! `LocalFileSystem` lists in no order, so a page of it would read the whole tree. This walk goes down the tree in the order of
//! keys, enters only folders that hold keys of the page, and keeps only the folders on its way in memory.

use crate::key;
use std::fs::{DirEntry, FileType};
use std::io;
use std::path::{Path, PathBuf};

/// Entries one folder may hold, at some 150 bytes each while it is walked. ImageNet's largest folder has 1,300; a folder beyond
/// a million files is slow on every file system, and without a bound one listing could take a host's memory.
pub(crate) const MOST_ENTRIES: usize = 1_000_000;

/// The keys of one page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) keys: Vec<String>,
    /// Whether there are more after them.
    pub(crate) more: bool,
    /// Names that were left out before the last of them, or before the end; ascending.
    pub(crate) odd: Vec<String>,
}

/// Why the tree could not be walked.
#[derive(Debug)]
pub(crate) enum WalkError {
    Io(io::Error),
    /// A folder with more than [`MOST_ENTRIES`]: its key.
    TooMany(String),
}

impl From<io::Error> for WalkError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The first `limit` keys after `after` of the files below `root` (canonical), ascending by their bytes.
///
/// Links are followed where they stay below the root and do not lead back to a folder they are in; those that leave it, names
/// that are no keys (not UTF-8, control characters) and files that cannot be told from one that is being written are left out.
pub(crate) fn page(root: &Path, after: Option<&str>, limit: usize) -> Result<Keys, WalkError> {
    let walk = Walk {
        root,
        after: after.unwrap_or_default(),
    };
    let mut way = vec![walk.enter("", root.to_owned())?];
    let (mut keys, mut odd, mut after_last) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(folder) = way.last_mut() {
        let Some(entry) = folder.entries.pop() else {
            way.pop();
            continue;
        };
        match entry.kind {
            Kind::Folder(real) if way.iter().any(|above| above.real == real) => {}
            Kind::Folder(real) => way.push(walk.enter(&entry.key, real)?),
            Kind::Odd => after_last.push(entry.key),
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
    root: &'a Path,
    after: &'a str,
}

struct Folder {
    /// Where it lies once links are followed.
    real: PathBuf,
    /// What is still to visit, last first.
    entries: Vec<Entry>,
}

struct Entry {
    /// The key of a file, or what the keys of a folder's files start with (it ends with `/`).
    key: String,
    kind: Kind,
}

enum Kind {
    File,
    /// Where it lies.
    Folder(PathBuf),
    /// No key, or not below the root.
    Odd,
}

impl Walk<'_> {
    fn enter(&self, prefix: &str, real: PathBuf) -> Result<Folder, WalkError> {
        let mut entries = Vec::new();
        let listing = match std::fs::read_dir(&real) {
            Ok(listing) => listing,
            // Removed since its parent was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !prefix.is_empty() => {
                return Ok(Folder { real, entries });
            }
            Err(error) => return Err(error.into()),
        };
        for item in listing {
            if let Some(entry) = self.entry(prefix, &item?) {
                entries.push(entry);
            }
            if entries.len() > MOST_ENTRIES {
                return Err(WalkError::TooMany(prefix.trim_end_matches('/').to_owned()));
            }
        }
        entries.sort_unstable_by(|a, b| b.key.cmp(&a.key));
        Ok(Folder { real, entries })
    }

    /// The entry, unless none of its keys can be on the page.
    fn entry(&self, prefix: &str, item: &DirEntry) -> Option<Entry> {
        let name = item.file_name();
        let key = format!("{prefix}{}", name.to_string_lossy());
        let fine = name.to_str().is_some() && key::checked(&key).is_ok();
        let kind = match self.resolve(item).filter(|_| fine) {
            None => Kind::Odd,
            Some((path, kind)) if kind.is_dir() => Kind::Folder(path),
            Some((_, kind)) if kind.is_file() && name.to_str().is_some_and(is_being_written) => Kind::Odd,
            Some((_, kind)) if kind.is_file() => Kind::File,
            // A socket, a pipe, a device.
            Some(_) => return None,
        };
        let key = if let Kind::Folder(_) = kind {
            key + "/"
        } else {
            key
        };
        let inside = matches!(kind, Kind::Folder(_)) && self.after.starts_with(&key);
        (inside || key.as_str() > self.after).then_some(Entry { key, kind })
    }

    fn resolve(&self, item: &DirEntry) -> Option<(PathBuf, FileType)> {
        let kind = item.file_type().ok()?;
        if !kind.is_symlink() {
            return Some((item.path(), kind));
        }
        let real = item
            .path()
            .canonicalize()
            .ok()
            .filter(|real| real.starts_with(self.root))?;
        let kind = real.metadata().ok()?.file_type();
        Some((real, kind))
    }
}

/// Whether a file is named like one that `LocalFileSystem` is still writing, such as `photo.jpg#1`, and which it therefore does not read.
fn is_being_written(name: &str) -> bool {
    name.split_once('#')
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether `key` lies below `root` (canonical) once links are followed. What does not exist yet is judged by the part of its way
/// that does.
pub(crate) fn holds(root: &Path, key: &str) -> bool {
    let path = root.join(key);
    let existing = path.ancestors().find_map(|part| match part.canonicalize() {
        Ok(real) => Some(Some(real)),
        // A dangling link leads to where nothing is yet; writing through it would make something there.
        Err(_) if part.is_symlink() => Some(None),
        Err(_) => None,
    });
    existing.flatten().is_some_and(|real| real.starts_with(root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
                let found = page(&root, after.as_deref(), limit).unwrap();
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
        let found = page(&root, None, 100).unwrap();
        assert_eq!(found.odd, ["out.jpg", "up"]);
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
        let found = page(&root, None, 100).unwrap();
        assert_eq!(found.keys, ["a.jpg", "b#x.jpg", "c#1/d.jpg"]);
        assert_eq!(found.odd, ["line\nbreak.jpg", "photo#12"]);
    }

    #[test]
    fn what_is_left_out_is_counted_once_over_all_pages() {
        let (_folder, root) = tree(&["a\n/1.jpg", "b\n", "c", "d\n", "e", "f\n"]);
        for limit in 1..4 {
            let (mut left_out, mut after) = (0, None);
            loop {
                let found = page(&root, after.as_deref(), limit).unwrap();
                left_out += found.odd.len();
                after = found.keys.last().cloned();
                if !found.more {
                    break;
                }
            }
            assert_eq!(left_out, 4, "pages of {limit}");
        }
    }

    #[test]
    fn nothing_is_written_through_a_link_that_leads_out() {
        let (folder, root) = tree(&["a.jpg"]);
        symlink(folder.path(), root.join("up")).unwrap();
        symlink(folder.path().join("absent"), root.join("dangling.jpg")).unwrap();
        assert!(holds(&root, "a.jpg") && holds(&root, "new/folder/b.jpg"));
        for key in ["up/new.jpg", "up/new/b.jpg", "dangling.jpg"] {
            assert!(!holds(&root, key), "{key}");
        }
    }
}
