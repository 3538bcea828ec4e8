use super::files;
use crate::ReportError;
use serde::Deserialize;
use std::path::{Component, Path};

/// Maximum number of mistakes.
const MOST: usize = 48;
/// Maximum size per image and in total in bytes.
const IMAGE: u64 = 256 << 10;
const IMAGES: usize = 4 << 20;

/// A sample with a wrong prediction.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordedMistake {
    pub(crate) key: String,
    pub(crate) label: String,
    pub(crate) predicted: String,
    /// Probability of the predicted class.
    pub(crate) probability: Option<f64>,
    /// Number of wrong labels, and the loss. Only for labels.
    pub(crate) wrong: Option<u64>,
    pub(crate) loss: Option<f64>,
    /// Target with the largest error, and the error. Only for numbers.
    pub(crate) target: Option<String>,
    pub(crate) error: Option<f64>,
    /// Name of the image's file.
    image: Option<String>,
    /// Media type and contents of the image. `None` if it cannot be shown.
    #[serde(skip)]
    pub(crate) contents: Option<(&'static str, Vec<u8>)>,
}

/// Reads the listed mistakes, starting with the worst.
pub(crate) fn read(folder: &Path) -> Result<Vec<RecordedMistake>, ReportError> {
    let file = folder.join(frostline_job::folder::MISTAKES_LIST);
    let mut mistakes: Vec<RecordedMistake> = files::json(&file)?.unwrap_or_default();
    mistakes.truncate(MOST);
    let mut left = IMAGES;
    for mistake in &mut mistakes {
        let name = mistake.image.take();
        mistake.contents = name.and_then(|name| image(folder, &name, &mut left));
    }
    Ok(mistakes)
}

/// Reads an image in the folder. Returns `None` if the name contains a path, or the image is missing, too
/// large or neither JPEG nor PNG.
fn image(folder: &Path, name: &str, left: &mut usize) -> Option<(&'static str, Vec<u8>)> {
    let mut parts = Path::new(name).components();
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else {
        return None;
    };
    let bytes = files::whole(&folder.join(name), IMAGE).ok()??;
    let kind = if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
        "image/jpeg"
    } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        "image/png"
    } else {
        return None;
    };
    *left = left.checked_sub(bytes.len())?;
    Some((kind, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_images_of_the_folder_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let mistakes = folder.path().join("mistakes");
        std::fs::create_dir(&mistakes).unwrap();
        let png = b"\x89PNG\r\n\x1a\nrest";
        std::fs::write(folder.path().join("outside.png"), png).unwrap();
        std::fs::write(mistakes.join("00.png"), png).unwrap();
        std::fs::write(mistakes.join("01.png"), "<svg/>").unwrap();
        std::fs::write(mistakes.join("02.png"), [png.as_slice(), &[0; 300_000]].concat()).unwrap();
        let mut left = 20;
        for other in [
            "../outside.png",
            "/etc/hostname",
            "01.png",
            "02.png",
            "none.png",
            ".",
        ] {
            assert_eq!(image(&mistakes, other, &mut left), None, "{other}");
        }
        assert!(image(&mistakes, "00.png", &mut left).is_some());
        assert_eq!(image(&mistakes, "00.png", &mut left), None);
    }
}
