/// Lower-case filename extensions (without the dot) of images that [`decode`](crate::decode()) supports.
pub const EXTENSIONS: [&str; 7] = ["jpg", "jpeg", "jpe", "png", "webp", "gif", "bmp"];

/// Filename extensions of image formats that [`decode`](crate::decode()) refuses.
const UNSUPPORTED: [&str; 9] = ["heic", "heif", "avif", "tif", "tiff", "jxl", "jp2", "dcm", "psd"];

/// Returns true if the extension belongs to an unsupported image format. Loading the file returns an error
/// that names the format.
pub fn is_unsupported_image_name(key: &str) -> bool {
    let known = |extension: &str| {
        UNSUPPORTED
            .iter()
            .any(|known| known.eq_ignore_ascii_case(extension))
    };
    extension(key).is_some_and(known)
}

/// Returns true if the extension belongs to a supported image format, ignoring case. The actual format is
/// detected when reading the object.
pub fn is_image_name(key: &str) -> bool {
    let known = |extension: &str| {
        EXTENSIONS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(extension))
    };
    extension(key).is_some_and(known)
}

/// Returns the filename extension. Returns `None` for names without an extension, such as hashes, and for
/// hidden files.
pub fn extension(key: &str) -> Option<&str> {
    let name = key.rsplit('/').next()?;
    let (stem, extension) = name.rsplit_once('.')?;
    (!stem.is_empty()).then_some(extension)
}

#[cfg(test)]
mod tests {
    use super::*;

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
