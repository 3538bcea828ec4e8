use frostline_tensor::{IMAGE_EXTENSIONS, is_hidden_name, is_image_name, is_unsupported_image_name};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

/// Iterates over the images in a list of paths. Paths keep their order, and images within a folder are sorted
/// by key. Memory use is limited to the names in the folders being visited.
///
/// A path to a file is always treated as an image. Folders are searched for names with an image extension,
/// including unsupported formats. Hidden files and folders are skipped. Links are followed.
pub(super) struct Walk {
    paths: IntoIter<PathBuf>,
    /// Folders from the given path down to the current one.
    open_folders: Vec<Folder>,
    /// Whether the given path has produced an item.
    found: bool,
}

struct Folder {
    path: PathBuf,
    /// Canonical path, used to detect symlink loops.
    real: PathBuf,
    entries: IntoIter<WalkEntry>,
}

#[derive(PartialEq, Eq)]
struct WalkEntry {
    name: OsString,
    folder: bool,
}

/// Path of an image, or a path with an error message.
pub(super) type WalkItem = Result<PathBuf, (PathBuf, String)>;

impl Walk {
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths: paths.into_iter(),
            open_folders: Vec::new(),
            found: false,
        }
    }

    fn start(&mut self, path: PathBuf) -> Option<WalkItem> {
        self.found = false;
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => self.enter(path),
            Ok(_) => Some(Ok(path)),
            Err(error) => {
                let why = unreadable(&path, &error);
                Some(Err((path, why)))
            }
        }
    }

    /// Enters a folder. Returns an item only if this fails.
    fn enter(&mut self, path: PathBuf) -> Option<WalkItem> {
        let opened = fs::canonicalize(&path).and_then(|real| Ok((real, entries(&path)?)));
        let refused = match opened {
            Ok((real, _)) if self.open_folders.iter().any(|folder| folder.real == real) => {
                "symlink loop: the target is a parent folder; remove the link".to_owned()
            }
            Ok((real, entries)) => {
                let entries = entries.into_iter();
                self.open_folders.push(Folder { path, real, entries });
                return None;
            }
            Err(error) => unreadable(&path, &error),
        };
        self.found = true;
        Some(Err((path, refused)))
    }

    fn leave(&mut self) -> Option<WalkItem> {
        let folder = self.open_folders.pop()?;
        (self.open_folders.is_empty() && !self.found).then(|| {
            let why = format!("the folder contains no image (.{})", IMAGE_EXTENSIONS.join(", ."));
            Err((folder.path, why))
        })
    }
}

impl Iterator for Walk {
    type Item = WalkItem;

    fn next(&mut self) -> Option<WalkItem> {
        loop {
            let found = match self.open_folders.last_mut() {
                None => {
                    let path = self.paths.next()?;
                    self.start(path)
                }
                Some(folder) => match folder.entries.next() {
                    None => self.leave(),
                    Some(WalkEntry { name, folder: true }) => {
                        let path = folder.path.join(name);
                        self.enter(path)
                    }
                    Some(WalkEntry { name, .. }) => {
                        self.found = true;
                        Some(Ok(folder.path.join(name)))
                    }
                },
            };
            if found.is_some() {
                return found;
            }
        }
    }
}

/// Lists the folders and images in a folder, in the order of object keys.
fn entries(folder: &Path) -> io::Result<Vec<WalkEntry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let mut is_folder = kind.is_dir();
        if kind.is_symlink() {
            // Dangling links are reported during the read.
            is_folder = fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir());
        }
        let name = entry.file_name();
        let text = name.to_string_lossy();
        // Unsupported formats are rejected during the read.
        let is_image = is_image_name(&text) || is_unsupported_image_name(&text);
        if !is_hidden_name(&text) && (is_folder || is_image) {
            drop(text);
            entries.push(WalkEntry {
                name,
                folder: is_folder,
            });
        }
    }
    entries.sort_unstable_by(|left, right| left.key().cmp(right.key()));
    Ok(entries)
}

impl WalkEntry {
    /// Sort key: the name, followed by a slash for folders.
    fn key(&self) -> impl Iterator<Item = &u8> {
        let end: &[u8] = if self.folder { b"/" } else { b"" };
        self.name.as_encoded_bytes().iter().chain(end)
    }
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    if path.to_string_lossy().contains("://") {
        return format!(
            "cannot read the path: {error}; predictions are made for local files and folders; evaluate the model on a store instead"
        );
    }
    format!("cannot read the path: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn folder(files: &[&str]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        root
    }

    /// Walks `paths` below `root`. A failed path is marked with `!`.
    fn walk(root: &TempDir, paths: &[&str]) -> Vec<String> {
        let name = |path: &Path| path.strip_prefix(root.path()).unwrap().display().to_string();
        Walk::new(paths.iter().map(|path| root.path().join(path)).collect())
            .map(|found| match found {
                Ok(path) => name(&path),
                Err((path, _)) => format!("{}!", name(&path)),
            })
            .collect()
    }

    #[test]
    fn folders_are_walked_in_the_order_of_keys_and_paths_in_their_own() {
        let root = folder(&[
            "a/2.PNG",
            "a/10.jpg",
            "a-b/1.webp",
            "a.gif",
            "a/deep/er/x.jpeg",
            "a/IMG_1.HEIC",
            "a/notes.txt",
            ".hidden/1.jpg",
            "a/.1.jpg",
        ]);
        assert_eq!(
            walk(&root, &[""]),
            [
                "a-b/1.webp",
                "a.gif",
                "a/10.jpg",
                "a/2.PNG",
                "a/IMG_1.HEIC",
                "a/deep/er/x.jpeg"
            ]
        );
        // Named files are used without a filter.
        assert_eq!(
            walk(&root, &["a.gif", "a/notes.txt", ".hidden", "a.gif"]),
            ["a.gif", "a/notes.txt", ".hidden/1.jpg", "a.gif"]
        );
    }

    #[test]
    fn paths_without_images_are_reported_and_skipped() {
        let root = folder(&["none/notes.txt", "some/1.jpg"]);
        assert_eq!(
            walk(&root, &["missing.jpg", "none", "some"]),
            ["missing.jpg!", "none!", "some/1.jpg"]
        );
        let store = Walk::new(vec!["s3://photos".into()]).next().unwrap().unwrap_err();
        assert!(store.1.contains("on a store"), "{}", store.1);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_but_not_in_a_circle() {
        use std::os::unix::fs::symlink;
        let root = folder(&["a/1.jpg", "elsewhere/2.jpg"]);
        symlink(root.path().join("elsewhere"), root.path().join("a/linked")).unwrap();
        symlink(root.path().join("a"), root.path().join("a/round")).unwrap();
        symlink(root.path().join("nowhere"), root.path().join("a/3.jpg")).unwrap();
        assert_eq!(
            walk(&root, &["a"]),
            ["a/1.jpg", "a/3.jpg", "a/linked/2.jpg", "a/round!"]
        );
    }
}
