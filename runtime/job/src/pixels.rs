//! Preprocessing settings and their text forms.

use crate::StatedPixels;
use crate::setting::settings;
use crate::{Conflict, SettingError};
use frostline_tensor::{ChannelOrder, Interpolation, PixelSpec, ResizeMode};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Numbers for red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Channels(pub [f32; 3]);

impl FromStr for Channels {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let wanted = "expected three numbers (example: 0.485,0.456,0.406)";
        Ok(Self(three(words).ok_or(wanted)?))
    }
}

impl fmt::Display for Channels {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(to, "{red},{green},{blue}")
    }
}

/// Parses three numbers, separated by commas.
fn three<T: FromStr>(words: &str) -> Option<[T; 3]> {
    let numbers = words.split(',').map(|word| word.trim().parse().ok());
    let numbers: Option<Vec<T>> = numbers.collect();
    numbers?.try_into().ok()
}

/// Color with 8 bits per channel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Color(pub [u8; 3]);

impl FromStr for Color {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let wanted = "expected three numbers between 0 and 255 (example: 124,116,104)";
        Ok(Self(three(words).ok_or(wanted)?))
    }
}

impl fmt::Display for Color {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(to, "{red},{green},{blue}")
    }
}

settings! {
    /// Preprocessing of images. Missing settings are read from the model, or default to ImageNet's
    /// preprocessing.
    #[command(next_help_heading = "Preprocessing")]
    PixelFlags {
        /// File with all preprocessing settings (preprocessor_config.json of transformers, config.json of
        /// timm, or a recipe)
        Identity pixels: Option<StatedPixels> = None => arg(long, value_name = "FILE");
        /// Short side of the resized image in pixels
        Identity resize: Option<u32> = None => arg(long, value_name = "PIXELS");
        /// Side of the center crop in pixels
        Identity crop: Option<u32> = None => arg(long, value_name = "PIXELS");
        /// Mode of resizing: by the short side, to the shape of the crop, or into this shape without
        /// distortion [short, squash, pad]
        Identity resize_mode: Option<ResizeMode> = None => arg(long, value_name = "MODE");
        /// Color of the padding for resize mode pad. Red, green and blue are 0 to 255
        Identity fill: Option<Color> = None => arg(long, value_name = "R,G,B");
        /// Interpolation for resizing [bilinear, bicubic, lanczos, nearest]. All except nearest are
        /// antialiased
        Identity interpolation: Option<Interpolation> = None => arg(long, value_name = "NAME");
        /// Order of the network's channels [rgb, bgr]
        Identity channels: Option<ChannelOrder> = None => arg(long, value_name = "ORDER");
        /// Mean to subtract from channels, which range from 0 to 1 (example: 0.485,0.456,0.406)
        Identity mean: Option<Channels> = None => arg(long, value_name = "R,G,B");
        /// Standard deviation to divide channels by, after subtracting the mean
        Identity std: Option<Channels> = None => arg(long, value_name = "R,G,B");
    }
}

impl PixelFlags {
    /// Returns the source for a recipe that uses these settings. Meaningless if no setting is given.
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

    /// Returns true if no setting is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that these settings are not combined with `parameters`, which contain the whole recipe.
    ///
    /// # Errors
    /// Returns a [`SettingError`] if both are given.
    pub fn check_excludes_parameters(&self, parameters: Option<&str>) -> Result<(), SettingError> {
        SettingError::require(
            self.is_empty() || parameters.is_none(),
            "parameters",
            &parameters.unwrap_or_default(),
            "it contains the preprocessing recipe; remove pixels, resize and other preprocessing settings, or add the values to the recipe",
        )
        .map_err(|error| error.with_conflict(Conflict::TwoRecipes))
    }

    /// Returns the recipe file, or `usual` if no file is given, modified by these settings. The modes
    /// `Squash` and `Pad` change the default of `resize` to the short side of the crop.
    pub fn apply_to(&self, usual: PixelSpec) -> PixelSpec {
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

/// Source of a preprocessing recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
pub enum PixelSource {
    /// Preprocessing flags such as `--resize`, `--crop`, `--mean` and `--std`.
    #[strum(serialize = "from flags")]
    Flags,
    /// `--pixels` alone.
    #[strum(serialize = "from the pixels file")]
    File,
    /// `preprocessor_config.json` in the folder of the model.
    #[strum(serialize = "from preprocessor_config.json next to the model")]
    Beside,
    /// Metadata of the model.
    #[strum(serialize = "from the model")]
    Model,
    /// First layers of the network, which normalize raw pixels. The size is that of ImageNet's preprocessing.
    #[strum(serialize = "raw pixels, because the network normalizes its input")]
    Network,
    /// No source. ImageNet's preprocessing is assumed.
    #[strum(
        serialize = "ImageNet defaults, because the model contains no preprocessing; set pixels, resize, crop, mean or std to change them"
    )]
    Assumed,
}

/// Formats a recipe for display.
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
