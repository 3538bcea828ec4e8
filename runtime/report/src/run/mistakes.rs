use super::files;
use crate::ReportError;
use serde::Deserialize;
use std::path::{Component, Path};

/// Maximum number of mistakes.
const MOST: usize = 48;
/// Maximum size per image and in total in bytes.
const IMAGE: u64 = 256 << 10;
const IMAGES: usize = 4 << 20;
/// Maximum size of the list in bytes.
const LIST: u64 = 4 << 20;

/// A sample with a wrong prediction.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) key: String,
    pub(crate) label: String,
    pub(crate) predicted: String,
    pub(crate) measure: Measure,
    /// Media type and contents of the image. `None` if it cannot be shown.
    pub(crate) image: Option<(&'static str, Vec<u8>)>,
}

/// Ranking measure of a mistake. Unknown values are NaN.
#[derive(Debug, PartialEq)]
pub(crate) enum Measure {
    /// Probability of the predicted class.
    Class { probability: f64 },
    /// Number of wrong labels, and the loss.
    Labels { wrong: u64, loss: f64 },
    /// Target with the largest error, and the error.
    Number { target: String, error: f64 },
}

#[derive(Deserialize)]
struct ListedMistake {
    key: String,
    label: String,
    predicted: String,
    #[serde(default)]
    probability: Option<f64>,
    #[serde(default)]
    wrong: Option<u64>,
    #[serde(default)]
    loss: Option<f64>,
    #[serde(default)]
    target: Option<String>,
    #[serde(default)]
    error: Option<f64>,
    #[serde(default)]
    image: Option<String>,
}

impl ListedMistake {
    fn measure(&mut self) -> Measure {
        let known = |value: Option<f64>| value.unwrap_or(f64::NAN);
        match (self.wrong, self.target.take()) {
            (Some(wrong), _) => Measure::Labels {
                wrong,
                loss: known(self.loss),
            },
            (None, Some(target)) => Measure::Number {
                target,
                error: known(self.error),
            },
            (None, None) => Measure::Class {
                probability: known(self.probability),
            },
        }
    }
}

/// Reads the listed mistakes, starting with the worst.
pub(crate) fn read(folder: &Path) -> Result<Vec<Mistake>, ReportError> {
    let file = folder.join(frostline_job::folder::MISTAKES_LIST);
    let Some(bytes) = files::whole(&file, LIST)? else {
        return Ok(Vec::new());
    };
    let listed: Vec<ListedMistake> =
        serde_json::from_slice(&bytes).map_err(|error| ReportError::json(&file, &error))?;
    let mut left = IMAGES;
    let mistakes = listed.into_iter().take(MOST).map(|mut listed| {
        let image = listed
            .image
            .take()
            .and_then(|name| image(folder, &name, &mut left));
        Mistake {
            measure: listed.measure(),
            key: listed.key,
            label: listed.label,
            predicted: listed.predicted,
            image,
        }
    });
    Ok(mistakes.collect())
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
