//! Preprocessing recipes in the formats of other libraries: `preprocessor_config.json` of Hugging Face,
//! `config.json` of timm, and Frostline's own JSON.

use frostline_tensor::{ChannelOrder, Interpolation, PixelSpec, ResizeMode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// Name of the Hugging Face configuration file next to a model.
pub const PREPROCESSOR_CONFIG: &str = "preprocessor_config.json";

/// Size limit for configuration files in bytes. Typical files have a few thousand bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Preprocessing recipe that was read from a file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StatedPixels(pub PixelSpec);

impl StatedPixels {
    /// Parses the text of a configuration.
    ///
    /// # Errors
    /// Returns a message if the text has an unknown format, or requests preprocessing that is not supported.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| format!("invalid JSON: {error}"))?;
        let timm = value.get("pretrained_cfg").unwrap_or(&value);
        let spec = if value.get("crop_height").is_some() {
            read(&value)?
        } else if timm.get("input_size").is_some() {
            read::<Timm>(timm)?.spec()?
        } else if value.get("image_mean").is_some() || value.get("do_resize").is_some() {
            read::<Processor>(&value)?.spec()?
        } else {
            return Err(
                "unknown format: neither a recipe, nor config.json of timm, nor preprocessor_config.json of transformers"
                    .to_owned(),
            );
        };
        spec.check().map_err(|error| error.to_string())?;
        Ok(Self(spec))
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// Returns a message if the file cannot be read, and all errors of [`Self::from_json`].
    pub fn from_file(path: &std::path::Path) -> Result<Self, String> {
        use std::io::Read;
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
        let read = file.take(MOST_BYTES).read_to_string(&mut text);
        read.map_err(|error| error.to_string())?;
        Self::from_json(&text)
    }
}

impl FromStr for StatedPixels {
    type Err = String;

    /// Parses a path or a JSON recipe.
    fn from_str(words: &str) -> Result<Self, String> {
        if words.trim_start().starts_with('{') {
            return Self::from_json(words);
        }
        Self::from_file(words.as_ref())
    }
}

impl TryFrom<String> for StatedPixels {
    type Error = String;

    fn try_from(words: String) -> Result<Self, String> {
        Self::from_json(&words)
    }
}

impl fmt::Display for StatedPixels {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&serde_json::to_string(&self.0).map_err(|_| fmt::Error)?)
    }
}

impl From<StatedPixels> for String {
    fn from(stated: StatedPixels) -> Self {
        stated.to_string()
    }
}

fn read<T: for<'a> Deserialize<'a>>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| error.to_string())
}

/// Parameters of timm's `create_transform` for evaluation.
#[derive(Deserialize)]
struct Timm {
    input_size: [u32; 3],
    #[serde(default = "bicubic")]
    interpolation: String,
    #[serde(default = "whole")]
    crop_pct: f64,
    #[serde(default)]
    crop_mode: Option<String>,
    mean: [f32; 3],
    std: [f32; 3],
}

fn bicubic() -> String {
    "bicubic".to_owned()
}

fn whole() -> f64 {
    1.0
}

impl Timm {
    fn spec(self) -> Result<PixelSpec, String> {
        let [_, height, width] = self.input_size;
        let resize_mode = match self.crop_mode.as_deref() {
            None | Some("center") => ResizeMode::Short,
            Some("squash") => ResizeMode::Squash,
            Some("border") => ResizeMode::Pad,
            Some(other) => return Err(format!("crop_mode '{other}' is unknown")),
        };
        let interpolation = self.interpolation.parse();
        Ok(PixelSpec {
            resize: (f64::from(height.min(width)) / self.crop_pct) as u32,
            resize_mode,
            interpolation: interpolation
                .map_err(|_| format!("interpolation '{}' is unknown", self.interpolation))?,
            // timm fills borders with the mean.
            fill: match resize_mode {
                ResizeMode::Pad => self.mean.map(|mean| (255.0 * mean).round_ties_even() as u8),
                ResizeMode::Short | ResizeMode::Squash => [0; 3],
            },
            mean: self.mean,
            std: self.std,
            ..PixelSpec::imagenet(height, width)
        })
    }
}

/// Image processor configuration of transformers.
#[derive(Deserialize)]
struct Processor {
    #[serde(alias = "feature_extractor_type", default)]
    image_processor_type: String,
    size: Sides,
    #[serde(default)]
    do_center_crop: bool,
    #[serde(default)]
    crop_size: Option<Sides>,
    #[serde(default)]
    crop_pct: Option<f64>,
    #[serde(default = "bilinear")]
    resample: u32,
    #[serde(default = "yes")]
    do_resize: bool,
    #[serde(default = "yes")]
    do_rescale: bool,
    #[serde(default)]
    rescale_factor: Option<f64>,
    #[serde(default)]
    rescale_offset: bool,
    #[serde(default = "yes")]
    do_normalize: bool,
    #[serde(default)]
    do_flip_channel_order: bool,
    #[serde(default)]
    do_pad: bool,
    #[serde(default)]
    image_mean: Option<[f32; 3]>,
    #[serde(default)]
    image_std: Option<[f32; 3]>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(untagged)]
enum Sides {
    Exact { height: u32, width: u32 },
    Short { shortest_edge: u32 },
    One(u32),
}

fn bilinear() -> u32 {
    2
}

fn yes() -> bool {
    true
}

/// Resize and crop sizes in pixels.
struct Sizes {
    resize: u32,
    resize_mode: ResizeMode,
    height: u32,
    width: u32,
}

impl Processor {
    fn spec(self) -> Result<PixelSpec, String> {
        let Sizes {
            resize,
            resize_mode,
            height,
            width,
        } = self.sizes()?;
        let refused = [
            (!self.do_resize, "do_resize is false"),
            (self.rescale_offset, "rescale_offset is true"),
            (self.do_pad, "do_pad is true"),
        ];
        if let Some((_, why)) = refused.into_iter().find(|(refused, _)| *refused) {
            return Err(format!(
                "{why}, which is not supported; use preprocessing flags such as --resize instead"
            ));
        }
        let interpolation = match self.resample {
            0 => Interpolation::Nearest,
            1 => Interpolation::Lanczos,
            2 => Interpolation::Bilinear,
            3 => Interpolation::Bicubic,
            4 => return Err("resample 4 (box) is not supported".to_owned()),
            5 => return Err("resample 5 (hamming) is not supported".to_owned()),
            other => return Err(format!("resample {other} is unknown")),
        };
        // Transformers multiplies bytes by this factor before the normalization. Recipes scale bytes to 0..1.
        let factor = if self.do_rescale {
            self.rescale_factor.unwrap_or(1.0 / 255.0)
        } else {
            1.0
        };
        let scaled = |value: f32| (f64::from(value) / (factor * 255.0)) as f32;
        let (mean, std) = match (self.do_normalize, self.image_mean, self.image_std) {
            (false, ..) => ([0.0; 3], [1.0; 3]),
            (true, Some(mean), Some(std)) => (mean, std),
            (true, ..) => return Err("do_normalize is true without image_mean and image_std".to_owned()),
        };
        Ok(PixelSpec {
            resize,
            resize_mode,
            interpolation,
            mean: mean.map(scaled),
            std: std.map(scaled),
            channels: if self.do_flip_channel_order {
                ChannelOrder::Bgr
            } else {
                ChannelOrder::Rgb
            },
            ..PixelSpec::imagenet(height, width)
        })
    }

    fn sizes(&self) -> Result<Sizes, String> {
        /// `ConvNextImageProcessor` crops smaller images only.
        const SQUASHED: u32 = 384;
        let squash = |height: u32, width: u32, crop: (u32, u32)| Sizes {
            // Short side of the resized image, which has the shape of the crop.
            resize: height.min(width),
            resize_mode: ResizeMode::Squash,
            height: crop.0,
            width: crop.1,
        };
        let short = |resize, (height, width)| Sizes {
            resize,
            resize_mode: ResizeMode::Short,
            height,
            width,
        };
        let crop = self.crop_size.filter(|_| self.do_center_crop).map(Sides::square);
        match (self.size, crop) {
            (Sides::Exact { height, width }, None) => Ok(squash(height, width, (height, width))),
            (Sides::Exact { height, width }, Some(crop)) if height == width && crop.0 == crop.1 => {
                Ok(squash(height, width, crop))
            }
            (Sides::Exact { height, width }, Some((h, w))) => Err(format!(
                "resizing to {height}x{width} with a crop of {h}x{w} is not supported; use preprocessing flags such as --resize instead"
            )),
            (Sides::Short { shortest_edge: side } | Sides::One(side), _) if self.is_convnext() => {
                let resize = f64::from(side) / self.crop_pct.unwrap_or(224.0 / 256.0);
                Ok(if side < SQUASHED {
                    short(resize as u32, (side, side))
                } else {
                    squash(side, side, (side, side))
                })
            }
            (Sides::Short { shortest_edge }, Some(crop)) => Ok(short(shortest_edge, crop)),
            (Sides::One(side), Some(crop)) if self.image_processor_type.contains("CLIP") => Ok(short(side, crop)),
            (Sides::One(side), crop) => Ok(squash(side, side, crop.unwrap_or((side, side)))),
            (Sides::Short { .. }, None) => Err(
                "resizing the shortest edge without a crop gives images of different shapes; use preprocessing flags such as --crop instead"
                    .to_owned(),
            ),
        }
    }

    fn is_convnext(&self) -> bool {
        self.image_processor_type.starts_with("ConvNext") || self.crop_pct.is_some()
    }
}

impl Sides {
    fn square(self) -> (u32, u32) {
        match self {
            Self::Exact { height, width } => (height, width),
            Self::Short { shortest_edge: side } | Self::One(side) => (side, side),
        }
    }
}

#[cfg(test)]
#[path = "stated_pixels_tests.rs"]
mod tests;
