//! File names of samples. All layouts select images by these rules: objects, members of shards and local files.

/// Lower-case filename extensions (without the dot) of images that hosts decode.
pub const IMAGE_EXTENSIONS: [&str; 7] = ["jpg", "jpeg", "jpe", "png", "webp", "gif", "bmp"];

/// Filename extensions of image formats that are refused by name.
const UNSUPPORTED: [&str; 9] = ["heic", "heif", "avif", "tif", "tiff", "jxl", "jp2", "dcm", "psd"];

/// Returns true if the extension belongs to an unsupported image format. Loading the file returns an error
/// that names the format.
pub fn is_unsupported_image_name(key: &str) -> bool {
    has_extension(key, &UNSUPPORTED)
}

/// Returns true if the extension belongs to a supported image format, ignoring case. The actual format is
/// detected when reading the object.
pub fn is_image_name(key: &str) -> bool {
    has_extension(key, &IMAGE_EXTENSIONS)
}

fn has_extension(key: &str, known: &[&str]) -> bool {
    let extension = extension(key);
    extension.is_some_and(|extension| known.iter().any(|known| known.eq_ignore_ascii_case(extension)))
}

/// Returns the filename extension. Returns `None` for names without an extension, such as hashes, and for
/// hidden files.
pub fn extension(key: &str) -> Option<&str> {
    let name = key.rsplit('/').next()?;
    let (stem, extension) = name.rsplit_once('.')?;
    (!stem.is_empty()).then_some(extension)
}

/// Returns true if a file or folder in the key is hidden, such as the `._1.jpg` that macOS stores next to
/// `1.jpg`, or if the key is that of a folder marker.
pub fn is_hidden_name(key: &str) -> bool {
    key.split('/')
        .any(|segment| segment.is_empty() || segment.starts_with('.'))
}

/// Returns true for the hidden file with which macOS replaces a file that it moved to iCloud.
pub fn is_cloud_placeholder(key: &str) -> bool {
    extension(key) == Some("icloud")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_files_and_folders_are_told_by_their_dot() {
        for key in [
            "._1.jpg",
            "a/._1.jpg",
            ".git/1.jpg",
            "a/.DS_Store",
            "a/",
            "/a.jpg",
            "",
        ] {
            assert!(is_hidden_name(key), "{key}");
        }
        for key in ["1.jpg", "a.b/1.jpg", "a/_.jpg"] {
            assert!(!is_hidden_name(key), "{key}");
        }
    }

    #[test]
    fn images_are_told_by_the_ending_of_their_names() {
        for key in [
            "a/1.jpg",
            "a.b/2.JPEG",
            "3.Png",
            "train-0.tar//4.webp",
            "x.y.gif",
            "a.JPE",
            "a.bmp",
        ] {
            assert!(is_image_name(key), "{key}");
        }
        for key in [
            "a/Thumbs.db",
            "notes.txt",
            "a.jpg/0f3c",
            ".jpg",
            "jpg",
            "a.heic",
            "",
        ] {
            assert!(!is_image_name(key), "{key}");
        }
        assert_eq!(extension("a.jpg/0f3c"), None);
        assert_eq!(extension("a/x.txt"), Some("txt"));
    }
}
