use frostline_tensor::{IMAGE_EXTENSIONS, is_hidden_name, is_image_name, is_unsupported_image_name};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// Path of an image, or a path with an error message.
pub(super) type WalkItem = Result<PathBuf, (PathBuf, String)>;

/// Returns the images at a path. Images within a folder are sorted by key. Memory use is limited to the names in
/// the folders being visited.
///
/// A path to a file is always treated as an image. Folders are searched for names with an image extension,
/// including unsupported formats, which are rejected during the read. Hidden files and folders are skipped. Links
/// are followed.
pub(super) fn images_at(path: PathBuf) -> Box<dyn Iterator<Item = WalkItem> + Send> {
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Box::new(iter::once(Ok(path))),
        Err(error) => {
            let why = unreadable(&path, &error);
            return Box::new(iter::once(Err((path, why))));
        }
    }
    let entries = WalkDir::new(&path).min_depth(1).follow_links(true);
    let entries = entries.sort_by(|left, right| key(left).cmp(key(right)));
    let visible = entries
        .into_iter()
        .filter_entry(|entry| !is_hidden(entry.file_name()));
    let mut items = visible.filter_map(item).peekable();
    if items.peek().is_none() {
        let why = format!("the folder contains no image (.{})", IMAGE_EXTENSIONS.join(", ."));
        return Box::new(iter::once(Err((path, why))));
    }
    Box::new(items)
}

/// Returns the item for an entry of a folder, or `None` if it is a folder or has another name than images.
fn item(entry: walkdir::Result<DirEntry>) -> Option<WalkItem> {
    let error = match entry {
        Ok(entry) => {
            let is_meant = !entry.file_type().is_dir() && is_image(entry.file_name());
            return is_meant.then(|| Ok(entry.into_path()));
        }
        Err(error) => error,
    };
    let path = error.path().unwrap_or(Path::new("")).to_owned();
    let name = path.file_name().unwrap_or_default();
    if error.depth() > 0 && is_hidden(name) {
        return None;
    }
    // Dangling links are reported during the read.
    if path.is_symlink() && !path.exists() {
        return is_image(name).then_some(Ok(path));
    }
    let why = match error.io_error() {
        Some(system) => unreadable(&path, system),
        None => "symlink loop: the target is a parent folder; remove the link".to_owned(),
    };
    Some(Err((path, why)))
}

/// Sort key in the order of object keys: the name, followed by a slash for folders.
fn key(entry: &DirEntry) -> impl Iterator<Item = &u8> {
    let end: &[u8] = if entry.file_type().is_dir() { b"/" } else { b"" };
    entry.file_name().as_encoded_bytes().iter().chain(end)
}

fn is_hidden(name: &OsStr) -> bool {
    is_hidden_name(&name.to_string_lossy())
}

fn is_image(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    is_image_name(&name) || is_unsupported_image_name(&name)
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
        let paths = paths.iter().map(|path| root.path().join(path));
        paths
            .flat_map(images_at)
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
        let store = images_at("s3://photos".into()).next().unwrap().unwrap_err();
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
