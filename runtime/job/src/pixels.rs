//! How an image becomes a network's input: what flags say of it, and how it is told.

use crate::SettingError;
use crate::setting::settings;
use frostline_tensor::PixelSpec;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number for red, green and blue each.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Channels(pub [f32; 3]);

impl FromStr for Channels {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let numbers: Result<Vec<f32>, _> = words.split(',').map(|word| word.trim().parse()).collect();
        let numbers = numbers.ok().and_then(|numbers| numbers.try_into().ok());
        numbers
            .map(Self)
            .ok_or_else(|| "three numbers are expected, as in 0.485,0.456,0.406".to_owned())
    }
}

impl fmt::Display for Channels {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(to, "{red},{green},{blue}")
    }
}

settings! {
    /// How an image becomes the network's input; what is not given is as the model says, else as for ImageNet.
    #[command(next_help_heading = "Preprocessing")]
    PixelFlags {
        /// Pixels that the short side of an image is resized to, bilinear and antialiased
        Identity resize: Option<u32> = None => arg(long, value_name = "PIXELS");
        /// Pixels a side of the square that is cropped from its centre
        Identity crop: Option<u32> = None => arg(long, value_name = "PIXELS");
        /// What is subtracted from red, green and blue, which are 0 to 1, as in 0.485,0.456,0.406
        Identity mean: Option<Channels> = None => arg(long, value_name = "R,G,B");
        /// What they are divided by then
        Identity std: Option<Channels> = None => arg(long, value_name = "R,G,B");
    }
}

impl PixelFlags {
    /// Whether none is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses them beside `parameters`, which say all of it.
    ///
    /// # Errors
    /// [`SettingError`].
    pub fn check_beside(&self, parameters: Option<&str>) -> Result<(), SettingError> {
        SettingError::unless(
            self.is_empty() || parameters.is_none(),
            "--parameters",
            &parameters.unwrap_or_default(),
            "it says the whole preprocessing: leave out --resize, --crop, --mean and --std, or write them into it",
        )
    }

    /// `usual` with what is given in its place.
    pub fn over(&self, usual: PixelSpec) -> PixelSpec {
        PixelSpec {
            resize: self.resize.unwrap_or(usual.resize),
            crop_height: self.crop.unwrap_or(usual.crop_height),
            crop_width: self.crop.unwrap_or(usual.crop_width),
            mean: self.mean.map_or(usual.mean, |mean| mean.0),
            std: self.std.map_or(usual.std, |std| std.0),
        }
    }
}

/// What says how images become a network's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PixelSource {
    /// `--resize`, `--crop`, `--mean` and `--std`.
    Flags,
    /// The model's metadata.
    Model,
    /// Nothing: it is ImageNet's.
    Assumed,
}

impl fmt::Display for PixelSource {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Flags => "as flags say",
            Self::Model => "as the model says",
            Self::Assumed => "ImageNet's, assumed because the model states no preprocessing; --resize, --crop, --mean and --std change it",
        })
    }
}

/// A recipe for people.
pub fn pixels_line(recipe: &PixelSpec, source: PixelSource) -> String {
    let PixelSpec {
        resize,
        crop_height,
        crop_width,
        mean,
        std,
    } = *recipe;
    format!(
        "short side {resize}, crop {crop_height}x{crop_width}, mean {}, std {} ({source})",
        Channels(mean),
        Channels(std)
    )
}
