use super::files;
use crate::ReportError;
use serde::Deserialize;
use std::path::{Component, Path};

/// Mistakes that are shown.
const MOST: usize = 48;
/// Bytes of an image, and of all of them.
const IMAGE: u64 = 256 << 10;
const IMAGES: usize = 4 << 20;
/// Bytes of the list.
const LIST: u64 = 4 << 20;

/// A sample that the model got wrong.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) key: String,
    pub(crate) label: String,
    pub(crate) predicted: String,
    pub(crate) measure: Measure,
    /// Its small image and that one's media type, where there is one that a page may show.
    pub(crate) image: Option<(&'static str, Vec<u8>)>,
}

/// What the worst are chosen by; not a number where the folder does not say.
#[derive(Debug, PartialEq)]
pub(crate) enum Measure {
    /// The probability of the predicted class.
    Class { probability: f64 },
    /// How many labels are wrong, and the loss.
    Labels { wrong: u64, loss: f64 },
    /// The number that is farthest off, and by how much.
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

/// The mistakes that the folder lists, the worst first.
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

/// An image that lies in the folder itself and is of a kind that browsers show; one that is not is left out, as it is one of many.
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
