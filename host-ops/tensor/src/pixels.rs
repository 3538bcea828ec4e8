use crate::{ChannelOrder, Interpolation, ResizeMode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Recipe for converting an image to a network's input, in torchvision's terms. The image is resized
/// (antialiased) and the center is cropped. Values are scaled to 0..1, then `mean` is subtracted and the
/// result divided by `std` per channel. Optional fields default to bilinear interpolation, resizing by the
/// short side, a black fill and RGB.
///
/// For inputs from -1 to 1, set `mean` and `std` to 0.5. For inputs from 0 to 255, set `mean` to 0 and `std`
/// to 1/255.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PixelSpec {
    /// Short side after the resize in pixels. With [`ResizeMode::Short`] the long side keeps the aspect ratio
    /// and is rounded down.
    pub resize: u32,
    /// Height of the center crop in pixels.
    pub crop_height: u32,
    /// Width of the center crop in pixels.
    pub crop_width: u32,
    /// Mean per channel after scaling to 0..1. Uses the order given by `channels`.
    pub mean: [f32; 3],
    /// Standard deviation per channel. Uses the order given by `channels`.
    pub std: [f32; 3],
    /// Interpolation of the resize.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interpolation: Interpolation,
    /// Meaning of `resize`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resize_mode: ResizeMode,
    /// Fill color for [`ResizeMode::Pad`] as RGB.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fill: [u8; 3],
    /// Order of the network's color channels.
    #[serde(default, skip_serializing_if = "is_default")]
    pub channels: ChannelOrder,
}

/// Skips default values when serializing, for compatibility with versions that do not have these fields.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Error returned for a [`PixelSpec`] that is invalid or would need too much memory.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PixelSpecError {
    /// A side is zero or exceeds [`PixelSpec::MAX_SIDE`].
    #[error("pixel spec: {what} is {value}; it must be 1 to {max}", max = PixelSpec::MAX_SIDE)]
    Side {
        /// Name of the field.
        what: &'static str,
        /// Value of the field.
        value: u32,
    },
    /// The crop is larger than the resized image.
    #[error("pixel spec: the crop {height}x{width} is larger than the resized short side {resize}")]
    Crop {
        /// Height of the crop.
        height: u32,
        /// Width of the crop.
        width: u32,
        /// Short side after the resize.
        resize: u32,
    },
    /// `mean` is not finite, or `std` is not positive and finite.
    #[error("pixel spec: mean must be finite and std positive and finite, got {mean:?} and {std:?}")]
    Normalization {
        /// Mean per channel.
        mean: [f32; 3],
        /// Standard deviation per channel.
        std: [f32; 3],
    },
}

impl PixelSpec {
    /// Version of the conversion from file to pixels. Version 2 applies EXIF orientation. Pixels and features
    /// of different versions are not mixed, so increment this whenever the results of decoding or resizing
    /// change.
    pub const VERSION: u32 = 2;

    /// Largest side in pixels. Networks use 224 to about 1,000. A sample with 4,096 squared pixels in `f32`
    /// RGB needs 200 MB, which exceeds any sensible batch.
    pub const MAX_SIDE: u32 = 4096;

    /// Returns the usual ImageNet recipe for networks with inputs of `height` x `width`. The short side is
    /// set to 8/7 of the longer crop side (256 for 224).
    pub fn imagenet(height: u32, width: u32) -> Self {
        let side = u64::from(height.max(width));
        let resize = u32::try_from((side * 8).div_ceil(7)).unwrap_or(u32::MAX);
        Self {
            resize,
            crop_height: height,
            crop_width: width,
            mean: [0.485, 0.456, 0.406],
            std: [0.229, 0.224, 0.225],
            interpolation: Interpolation::Bilinear,
            resize_mode: ResizeMode::Short,
            fill: [0; 3],
            channels: ChannelOrder::Rgb,
        }
    }

    /// Returns height and width of an image after the resize, given `(height, width)` before.
    pub fn resized(&self, (height, width): (u32, u32)) -> (u64, u64) {
        let short = height.min(width);
        let crop_short = self.crop_height.min(self.crop_width);
        let whole = (
            self.scaled(self.crop_height, crop_short),
            self.scaled(self.crop_width, crop_short),
        );
        match self.resize_mode {
            ResizeMode::Short => (self.scaled(height, short), self.scaled(width, short)),
            ResizeMode::Squash => whole,
            ResizeMode::Pad => {
                // Matches timm's `ResizeKeepRatio`, including Python's rounding.
                let height = f64::from(height);
                let width = f64::from(width);
                let ratio = (height / whole.0 as f64).max(width / whole.1 as f64);
                (fit(height / ratio, whole.0), fit(width / ratio, whole.1))
            }
        }
    }

    /// Returns a side of an image after the short side is resized to [`Self::resize`].
    fn scaled(&self, side: u32, short: u32) -> u64 {
        u64::from(self.resize) * u64::from(side) / u64::from(short.max(1))
    }

    /// Checks that sides are in range, the crop fits and the normalization is finite.
    ///
    /// # Errors
    /// Returns [`PixelSpecError`] for the first check that fails.
    pub fn check(&self) -> Result<(), PixelSpecError> {
        let sides = [
            ("resize", self.resize),
            ("crop_height", self.crop_height),
            ("crop_width", self.crop_width),
        ];
        for (what, value) in sides {
            if value == 0 || value > Self::MAX_SIDE {
                return Err(PixelSpecError::Side { what, value });
            }
        }
        let largest = match self.resize_mode {
            ResizeMode::Short => self.crop_height.max(self.crop_width),
            ResizeMode::Squash | ResizeMode::Pad => self.crop_height.min(self.crop_width),
        };
        if largest > self.resize {
            return Err(PixelSpecError::Crop {
                height: self.crop_height,
                width: self.crop_width,
                resize: self.resize,
            });
        }
        let finite = self.mean.iter().all(|m| m.is_finite());
        if !finite || !self.std.iter().all(|s| s.is_finite() && *s > 0.0) {
            return Err(PixelSpecError::Normalization {
                mean: self.mean,
                std: self.std,
            });
        }
        Ok(())
    }

    /// Returns the shape `[channels, height, width]` of each sample.
    pub fn sample_shape(&self) -> [usize; 3] {
        [3, self.crop_height as usize, self.crop_width as usize]
    }
}

/// Rounds a side to pixels, from 1 to `most`.
fn fit(side: f64, most: u64) -> u64 {
    (side.round_ties_even() as u64).clamp(1, most.max(1))
}

/// Format of loaded pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PixelFormat {
    /// Bytes `u8[n, 3, h, w]` before normalization.
    U8,
    /// Normalized network input `f32[n, 3, h, w]`.
    F32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imagenet_resizes_to_256_for_224() {
        let spec = PixelSpec::imagenet(224, 224);
        assert_eq!(spec.resize, 256);
        assert_eq!(spec.check(), Ok(()));
    }

    #[test]
    fn impossible_specs_are_refused() {
        let good = PixelSpec::imagenet(64, 64);
        assert!(
            PixelSpec {
                crop_width: 100,
                ..good
            }
            .check()
            .is_err()
        );
        assert!(PixelSpec { resize: 0, ..good }.check().is_err());
        assert!(
            PixelSpec {
                std: [0.0, 1.0, 1.0],
                ..good
            }
            .check()
            .is_err()
        );
        assert!(
            PixelSpec {
                mean: [f32::NAN, 0.0, 0.0],
                ..good
            }
            .check()
            .is_err()
        );
    }
}
