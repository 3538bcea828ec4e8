//! How an image becomes a network's input: what flags say of it, and how it is told.

use crate::SettingError;
use crate::StatedPixels;
use crate::setting::settings;
use frostline_tensor::{ChannelOrder, Interpolation, PixelSpec, ResizeMode};
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

/// A color of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Color(pub [u8; 3]);

impl FromStr for Color {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let bytes: Result<Vec<u8>, _> = words.split(',').map(|word| word.trim().parse()).collect();
        let bytes = bytes.ok().and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(Self)
            .ok_or_else(|| "three numbers of 0 to 255 are expected, as in 124,116,104".to_owned())
    }
}

impl fmt::Display for Color {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(to, "{red},{green},{blue}")
    }
}

settings! {
    /// How an image becomes the network's input; what is not given is as the model says, else as for ImageNet.
    #[command(next_help_heading = "Preprocessing")]
    PixelFlags {
        /// A file that states all of it: `preprocessor_config.json` of transformers, `config.json` of timm, or a recipe
        Identity pixels: Option<StatedPixels> = None => arg(long, value_name = "FILE");
        /// Pixels that the short side of an image is resized to
        Identity resize: Option<u32> = None => arg(long, value_name = "PIXELS");
        /// Pixels a side of the square that is cropped from its center
        Identity crop: Option<u32> = None => arg(long, value_name = "PIXELS");
        /// How it is resized: by its short side, to the crop's shape, or into that shape with its own [short, squash, pad]
        Identity resize_mode: Option<ResizeMode> = None => arg(long, value_name = "MODE");
        /// What `pad` fills with: red, green and blue of 0 to 255
        Identity fill: Option<Color> = None => arg(long, value_name = "R,G,B");
        /// How values between pixels are computed [bilinear, bicubic, lanczos, nearest]; all but the last are antialiased
        Identity interpolation: Option<Interpolation> = None => arg(long, value_name = "NAME");
        /// The order of the network's channels [rgb, bgr]
        Identity channels: Option<ChannelOrder> = None => arg(long, value_name = "ORDER");
        /// What is subtracted per channel, which are 0 to 1, as in 0.485,0.456,0.406
        Identity mean: Option<Channels> = None => arg(long, value_name = "R,G,B");
        /// What they are divided by then
        Identity std: Option<Channels> = None => arg(long, value_name = "R,G,B");
    }
}

impl PixelFlags {
    /// Which of them say it, where any does.
    pub fn source(&self) -> PixelSource {
        let alone = Self {
            pixels: self.pixels,
            ..Self::default()
        };
        if self.pixels.is_some() && *self == alone {
            PixelSource::File
        } else {
            PixelSource::Flags
        }
    }

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
            "it says the whole preprocessing: leave out --pixels, --resize and other flags of preprocessing, or write them into it",
        )
    }

    /// `usual`, or what a file states, with what is given in its place.
    pub fn over(&self, usual: PixelSpec) -> PixelSpec {
        let usual = self.pixels.map_or(usual, |stated| stated.0);
        let crop_height = self.crop.unwrap_or(usual.crop_height);
        let crop_width = self.crop.unwrap_or(usual.crop_width);
        let exact = matches!(self.resize_mode, Some(ResizeMode::Squash | ResizeMode::Pad));
        let resize = if exact {
            crop_height.min(crop_width)
        } else {
            usual.resize
        };
        PixelSpec {
            resize: self.resize.unwrap_or(resize),
            crop_height,
            crop_width,
            mean: self.mean.map_or(usual.mean, |mean| mean.0),
            std: self.std.map_or(usual.std, |std| std.0),
            interpolation: self.interpolation.unwrap_or(usual.interpolation),
            resize_mode: self.resize_mode.unwrap_or(usual.resize_mode),
            fill: self.fill.map_or(usual.fill, |fill| fill.0),
            channels: self.channels.unwrap_or(usual.channels),
        }
    }
}

/// What says how images become a network's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PixelSource {
    /// `--resize`, `--crop`, `--mean`, `--std` and others.
    Flags,
    /// `--pixels` alone.
    File,
    /// `preprocessor_config.json` beside the model.
    Beside,
    /// The model's metadata.
    Model,
    /// Nothing: it is ImageNet's.
    Assumed,
}

impl fmt::Display for PixelSource {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Flags => "as flags say",
            Self::File => "as the file of --pixels says",
            Self::Beside => "as preprocessor_config.json beside the model says",
            Self::Model => "as the model says",
            Self::Assumed => "ImageNet's, assumed because the model states no preprocessing; --pixels, --resize, --crop, --mean and --std change it",
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
        interpolation,
        resize_mode,
        fill,
        channels,
    } = *recipe;
    let resize = match resize_mode {
        ResizeMode::Short => format!("short side {resize}"),
        ResizeMode::Squash => format!("squashed to {resize}"),
        ResizeMode::Pad => format!("padded to {resize} with {}", Color(fill)),
    };
    let order = match channels {
        ChannelOrder::Rgb => "",
        ChannelOrder::Bgr => ", BGR",
    };
    format!(
        "{resize}, {interpolation}, crop {crop_height}x{crop_width}, mean {}, std {}{order} ({source})",
        Channels(mean),
        Channels(std)
    )
}
