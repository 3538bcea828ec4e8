//! Preprocessing recipes in the formats of other libraries: `preprocessor_config.json` of Hugging Face,
//! `config.json` of timm, and Frostline's own JSON.

use frostline_tensor::{PixelSpec, ResizeMode};
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
        // `processor_config.json` of transformers contains the configurations of several processors.
        let value = value.get("image_processor").unwrap_or(&value);
        let has = |name| value.get(name).is_some_and(|value| !value.is_null());
        let processor = [
            "image_processor_type",
            "feature_extractor_type",
            "image_mean",
            "do_resize",
        ];
        let spec = if has("crop_height") {
            read(value)?
        } else if has("pretrained_cfg") || has("input_size") {
            let config = value.get("pretrained_cfg").unwrap_or(value);
            read::<Timm>(config)?.spec()?
        } else if processor.into_iter().any(has) {
            crate::processor::recipe(value)?
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

/// Parameters of timm's `create_transform` for evaluation. Missing, null and empty values have the defaults of
/// timm's `resolve_data_config`.
#[derive(Deserialize)]
struct Timm {
    input_size: Option<[u32; 3]>,
    interpolation: Option<String>,
    crop_pct: Option<f64>,
    crop_mode: Option<String>,
    mean: Option<Vec<f64>>,
    std: Option<Vec<f64>>,
}

impl Timm {
    fn spec(self) -> Result<PixelSpec, String> {
        let [channels, height, width] = self.input_size.unwrap_or([3, 224, 224]);
        if channels != 3 {
            return Err(format!("input_size has {channels} channels, but images have 3"));
        }
        let usual = PixelSpec::imagenet(height, width);
        let crop_pct = self.crop_pct.filter(|share| *share != 0.0).unwrap_or(0.875);
        let scaled = |side: u32| (f64::from(side) / crop_pct) as u32;
        let resize_mode = match self.crop_mode.as_deref() {
            None | Some("" | "center") => ResizeMode::Short,
            Some("squash") => ResizeMode::Squash,
            Some("border") => ResizeMode::Pad,
            Some(other) => return Err(format!("crop_mode '{other}' is unknown")),
        };
        let resize = scaled(height.min(width));
        // Recipes resize the short side, or to exactly the proportions of the crop.
        let expressed = match resize_mode {
            ResizeMode::Short => height == width,
            ResizeMode::Squash | ResizeMode::Pad => {
                let short = u64::from(height.min(width).max(1));
                let long = height.max(width);
                u64::from(resize) * u64::from(long) / short == u64::from(scaled(long))
            }
        };
        if !expressed {
            return Err(format!(
                "input_size {height}x{width} is not square, which is not supported with crop_pct {crop_pct}"
            ));
        }
        let three = |values: Option<Vec<f64>>, usual: [f32; 3], name: &str| match values {
            Some(values) if !values.is_empty() => <[f64; 3]>::try_from(values)
                .map_err(|values| format!("{name} has {} values instead of 3", values.len())),
            _ => Ok(usual.map(f64::from)),
        };
        let mean = three(self.mean, usual.mean, "mean")?;
        let interpolation = self.interpolation.filter(|name| !name.is_empty());
        let interpolation = interpolation.as_deref().unwrap_or("bicubic");
        Ok(PixelSpec {
            resize,
            resize_mode,
            interpolation: interpolation
                .parse()
                .map_err(|_| format!("interpolation '{interpolation}' is unknown"))?,
            // timm fills borders with the mean.
            fill: match resize_mode {
                ResizeMode::Pad => mean.map(|mean| (255.0 * mean).round_ties_even() as u8),
                ResizeMode::Short | ResizeMode::Squash => [0; 3],
            },
            mean: mean.map(|mean| mean as f32),
            std: three(self.std, usual.std, "std")?.map(|std| std as f32),
            ..usual
        })
    }
}

#[cfg(test)]
#[path = "stated_pixels_tests.rs"]
mod tests;
