/// How names of images end that [`decode`](crate::decode) takes, without the dot and in lower case.
pub const EXTENSIONS: [&str; 7] = ["jpg", "jpeg", "jpe", "png", "webp", "gif", "bmp"];

/// How names of images end that [`decode`](crate::decode) refuses by their format.
const UNSUPPORTED: [&str; 9] = ["heic", "heif", "avif", "tif", "tiff", "jxl", "jp2", "dcm", "psd"];

/// Whether a file is an image by its name, though of a format that is refused: who reads it learns which.
pub fn is_unsupported_image_name(key: &str) -> bool {
    let known = |extension: &str| {
        UNSUPPORTED
            .iter()
            .any(|known| known.eq_ignore_ascii_case(extension))
    };
    extension(key).is_some_and(known)
}

/// Whether an object of this key is an image by its name, however its ending is spelled. What it really is shows when it is read.
pub fn is_image_name(key: &str) -> bool {
    let known = |extension: &str| {
        EXTENSIONS
            .iter()
            .any(|known| known.eq_ignore_ascii_case(extension))
    };
    extension(key).is_some_and(known)
}

/// What follows the last dot of a key's last segment; none for names without one, such as hashes, and for hidden files.
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
