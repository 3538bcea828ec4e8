use crate::{ChannelOrder, Interpolation, ResizeMode};
use serde::{Deserialize, Serialize};

/// How an image becomes a network's input, in torchvision's terms: resize (antialiased), crop the center, scale to 0..1, subtract
/// `mean` and divide by `std` per channel. What a recipe does not say is bilinear, by the short side, in RGB.
///
/// A network for -1..1 has 0.5 as `mean` and `std`; one for 0..255 has 1/255 as `std`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PixelSpec {
    /// Pixels the short side has after the resize; in [`ResizeMode::Short`] the other keeps the aspect ratio, rounded down.
    pub resize: u32,
    /// Height of the center crop, in pixels, within the resized image.
    pub crop_height: u32,
    /// Width of the center crop, in pixels, within the resized image.
    pub crop_width: u32,
    /// Subtracted per channel after scaling to 0..1, in the order of `channels`.
    pub mean: [f32; 3],
    /// Divided by per channel.
    pub std: [f32; 3],
    /// How values between pixels are computed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interpolation: Interpolation,
    /// What `resize` means.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resize_mode: ResizeMode,
    /// What [`ResizeMode::Pad`] fills with, in RGB.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fill: [u8; 3],
    /// The order of the network's channels.
    #[serde(default, skip_serializing_if = "is_default")]
    pub channels: ChannelOrder,
}

/// Recipes are written as before where they say nothing more.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A [`PixelSpec`] that no image can satisfy, or that would take absurd memory.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PixelSpecError {
    /// A side is zero or beyond [`PixelSpec::MAX_SIDE`].
    #[error("pixel spec: {what} is {value}, it must lie between 1 and {max}", max = PixelSpec::MAX_SIDE)]
    Side {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: u32,
    },
    /// The crop is larger than the resized image.
    #[error("pixel spec: the crop {height}x{width} is larger than the resized short side {resize}")]
    Crop {
        /// Crop height.
        height: u32,
        /// Crop width.
        width: u32,
        /// Short side after the resize.
        resize: u32,
    },
    /// `mean` is not finite or `std` is not positive and finite.
    #[error("pixel spec: mean must be finite and std positive, they are {mean:?} and {std:?}")]
    Normalization {
        /// The mean as given.
        mean: [f32; 3],
        /// The standard deviation as given.
        std: [f32; 3],
    },
}

impl PixelSpec {
    /// Counts what a file becomes by the same spec: two since EXIF orientation is honored. Pixels and features of other versions
    /// are not mixed; who changes what is decoded or resized to counts on.
    pub const VERSION: u32 = 2;

    /// The largest side, in pixels. Networks take 224 to about 1,000; 4,096 squared in f32 RGB is 200 MB a sample,
    /// beyond any sensible batch.
    pub const MAX_SIDE: u32 = 4096;

    /// ImageNet's usual recipe for a network that takes `height` x `width`: the short side is 8/7 of the longer crop side
    /// (256 for 224).
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

    /// What earlier versions of guests and hosts know: nothing but sizes, `mean` and `std`.
    pub fn is_classic(&self) -> bool {
        is_default(&self.interpolation)
            && is_default(&self.resize_mode)
            && is_default(&self.fill)
            && is_default(&self.channels)
    }

    /// Height and width of an image of `height` x `width` after the resize.
    pub fn resized(&self, (height, width): (u32, u32)) -> (u64, u64) {
        let side = |side: u32, short: u32| u64::from(self.resize) * u64::from(side) / u64::from(short.max(1));
        let (short, crop_short) = (height.min(width), self.crop_height.min(self.crop_width));
        let whole = (
            side(self.crop_height, crop_short),
            side(self.crop_width, crop_short),
        );
        match self.resize_mode {
            ResizeMode::Short => (side(height, short), side(width, short)),
            ResizeMode::Squash => whole,
            ResizeMode::Pad => {
                // timm's `ResizeKeepRatio`, rounded as Python does.
                let (height, width) = (f64::from(height), f64::from(width));
                let ratio = (height / whole.0 as f64).max(width / whole.1 as f64);
                let fit =
                    |side: f64, most: u64| ((side / ratio).round_ties_even() as u64).clamp(1, most.max(1));
                (fit(height, whole.0), fit(width, whole.1))
            }
        }
    }

    /// Refuses a spec that cannot be carried out.
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

    /// The shape of one sample: channels, height, width.
    pub fn sample_shape(&self) -> [usize; 3] {
        [3, self.crop_height as usize, self.crop_width as usize]
    }
}

/// What a loaded pixel is: the crop's bytes as decoded, or the normalized network input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PixelFormat {
    /// `u8[n, 3, h, w]`, before normalization.
    U8,
    /// `f32[n, 3, h, w]`, normalized.
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
