use frostline_tensor::{IMAGE_EXTENSIONS, is_hidden_name, is_image_name, is_unsupported_image_name};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};

/// Path of an image, or a path with an error message.
pub(super) type WalkItem = Result<PathBuf, (PathBuf, String)>;

type WalkItems = Box<dyn Iterator<Item = WalkItem> + Send>;

/// Returns the images at a path. Images within a folder are sorted by key. Memory use is limited to the names in
/// the folders being visited.
///
/// A path to a file is always treated as an image. Folders are searched for names with an image extension,
/// including unsupported formats, which are rejected during the read. Hidden files and folders are skipped. Links
/// are followed.
pub(super) fn images_at(path: PathBuf) -> WalkItems {
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Box::new(iter::once(Ok(path))),
        Err(error) => {
            let why = unreadable(&path, &error);
            return Box::new(iter::once(Err((path, why))));
        }
    }
    let mut items = images_in(path.clone(), &[]).peekable();
    if items.peek().is_none() {
        let why = format!("the folder contains no image (.{})", IMAGE_EXTENSIONS.join(", ."));
        return Box::new(iter::once(Err((path, why))));
    }
    Box::new(items)
}

/// Returns the images in a folder. `above` contains the canonical paths of the folders that led to it.
fn images_in(folder: PathBuf, above: &[PathBuf]) -> WalkItems {
    let opened = fs::canonicalize(&folder).and_then(|real| Ok((real, entries(&folder)?)));
    let why = match opened {
        Ok((real, _)) if above.contains(&real) => {
            "symlink loop: the target is a parent folder; remove the link".to_owned()
        }
        Ok((real, entries)) => {
            let above = [above, &[real]].concat();
            return Box::new(
                entries
                    .into_iter()
                    .flat_map(move |(name, is_folder)| -> WalkItems {
                        let path = folder.join(name);
                        if is_folder {
                            images_in(path, &above)
                        } else {
                            Box::new(iter::once(Ok(path)))
                        }
                    }),
            );
        }
        Err(error) => unreadable(&folder, &error),
    };
    Box::new(iter::once(Err((folder, why))))
}

/// Returns the images (`false`) and folders (`true`) in a folder, in the order of object keys.
fn entries(folder: &Path) -> io::Result<Vec<(OsString, bool)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        // Dangling links are reported during the read.
        let is_folder = kind.is_dir() || (kind.is_symlink() && entry.path().is_dir());
        let name = entry.file_name();
        let text = name.to_string_lossy();
        let is_image = is_image_name(&text) || is_unsupported_image_name(&text);
        if !is_hidden_name(&text) && (is_folder || is_image) {
            entries.push((entry.file_name(), is_folder));
        }
    }
    entries.sort_unstable_by(|left, right| key(left).cmp(key(right)));
    Ok(entries)
}

/// Sort key in the order of object keys: the name, followed by a slash for folders.
fn key((name, is_folder): &(OsString, bool)) -> impl Iterator<Item = &u8> {
    let end: &[u8] = if *is_folder { b"/" } else { b"" };
    name.as_encoded_bytes().iter().chain(end)
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
        let root = folder(&["a/dogs-old/2.jpg", "a/dogs.jpg", "elsewhere/1.jpg"]);
        symlink(root.path().join("elsewhere"), root.path().join("a/dogs")).unwrap();
        symlink(root.path(), root.path().join("elsewhere/up")).unwrap();
        assert_eq!(
            walk(&root, &["a"])[..3],
            ["a/dogs-old/2.jpg", "a/dogs.jpg", "a/dogs/1.jpg"]
        );
        assert_eq!(
            walk(&root, &["elsewhere"]).last().map(String::as_str),
            Some("elsewhere/up/elsewhere!")
        );
    }
}
