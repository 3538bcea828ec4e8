//! Random augmentation of training images, with names and parameters from torchvision's transforms.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Image transforms, applied in field order. Each is equal to the torchvision transform with the same name on
/// 8-bit Pillow images. Unset fields are skipped. Fields use timm's name if it is shorter.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Augmentation {
    /// `RandomResizedCrop` to the size of the network's input. It replaces the resize and the center crop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_resized_crop: Option<RandomResizedCrop>,
    /// `RandomHorizontalFlip`. Probability of mirroring the image, from 0 to 1.
    #[serde(skip_serializing_if = "is_zero")]
    pub hflip: f64,
    /// `RandAugment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rand_augment: Option<RandAugment>,
    /// `ColorJitter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color_jitter: Option<ColorJitter>,
    /// `RandomErasing`. The value applies after normalization, but is rounded to the nearest 8-bit level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_erasing: Option<RandomErasing>,
}

/// Crops a rectangle with random size, aspect ratio and position.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Range of the crop's area relative to the image, from 0 to 1.
    pub scale: [f64; 2],
    /// Range of the ratio of width to height.
    pub ratio: [f64; 2],
}

impl Default for RandomResizedCrop {
    fn default() -> Self {
        Self {
            scale: [0.08, 1.0],
            ratio: [3.0 / 4.0, 4.0 / 3.0],
        }
    }
}

/// Applies operations chosen at random from a set of 14.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RandAugment {
    /// Number of operations, up to [`Augmentation::MOST_OPS`].
    pub num_ops: u32,
    /// Strength of each operation, from 0 to 30.
    pub magnitude: u32,
}

impl Default for RandAugment {
    fn default() -> Self {
        Self {
            num_ops: 2,
            magnitude: 9,
        }
    }
}

/// Changes colors by random factors in random order. Each factor is drawn uniformly from `max(0, 1 - x)` to
/// `1 + x` for a deviation `x` from 0 to 10, so 0, the default, disables the change.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ColorJitter {
    /// Deviation of the brightness factor.
    pub brightness: f64,
    /// Deviation of the contrast factor.
    pub contrast: f64,
    /// Deviation of the saturation factor.
    pub saturation: f64,
    /// Maximum rotation of the hue in either direction, from 0 to 0.5 turns.
    pub hue: f64,
}

/// Fills a rectangle with random size, aspect ratio and position.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RandomErasing {
    /// Probability, from 0 to 1.
    pub p: f64,
    /// Range of the rectangle's area relative to the input, from 0 to 1.
    pub scale: [f64; 2],
    /// Range of the ratio of height to width.
    pub ratio: [f64; 2],
    /// Fill value after normalization.
    pub value: f64,
}

impl Default for RandomErasing {
    fn default() -> Self {
        Self {
            p: 0.5,
            scale: [0.02, 0.33],
            ratio: [0.3, 3.3],
            value: 0.0,
        }
    }
}

/// Identifies a view of a data set. The augmentation of a sample depends only on these fields and the
/// sample's key.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// The augmentation to apply.
    pub augmentation: Augmentation,
    /// Seed of the job.
    pub seed: u64,
    /// Number of the view. This is the epoch, or the epoch modulo the number of views if views repeat.
    pub number: u32,
}

/// Error returned for an invalid or excessively expensive [`Augmentation`].
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{what} is {value:?}; it must be {must}")]
pub struct AugmentationError {
    /// Name of the parameter.
    pub what: &'static str,
    /// Value of the parameter.
    pub value: f64,
    /// Description of the allowed values.
    pub must: &'static str,
}

impl Augmentation {
    /// Maximum number of [`RandAugment`] operations. The default in torchvision is 2, and the paper uses up
    /// to 3. This limits the time that a request can spend on one image.
    pub const MOST_OPS: u32 = 8;
    /// Range of [`RandAugment`] magnitudes, equal to torchvision's 31 bins.
    pub const MAGNITUDES: RangeInclusive<u32> = 0..=30;
    /// Maximum deviation of [`ColorJitter`] factors. At 10, nearly every pixel is black or white.
    const MOST_JITTER: f64 = 10.0;

    /// Returns true if no transform is enabled.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that all parameters are in range.
    ///
    /// # Errors
    /// Returns [`AugmentationError`] with the allowed range if a parameter is out of range.
    pub fn check(&self) -> Result<(), AugmentationError> {
        const SHARE: &str = "0 to 1";
        within("hflip", self.hflip, 0.0..=1.0, SHARE)?;
        if let Some(RandomResizedCrop { scale, ratio }) = self.random_resized_crop {
            ordered("the scale of random_resized_crop", scale, 0.0..=1.0, SCALE)?;
            ordered("the ratio of random_resized_crop", ratio, RATIO, RATIO_WORDS)?;
            // No rectangle with an area of 0 is accepted, so the transform would use the whole image.
            within("the scale of random_resized_crop", scale[1], 1e-6..=1.0, SCALE)?;
        }
        if let Some(RandAugment { num_ops, magnitude }) = self.rand_augment {
            let most = f64::from(Self::MOST_OPS);
            within("num_ops of rand_augment", num_ops.into(), 0.0..=most, "0 to 8")?;
            let most = f64::from(*Self::MAGNITUDES.end());
            within(
                "the magnitude of rand_augment",
                magnitude.into(),
                0.0..=most,
                "0 to 30",
            )?;
        }
        if let Some(jitter) = self.color_jitter {
            let factors = [
                ("the brightness of color_jitter", jitter.brightness),
                ("the contrast of color_jitter", jitter.contrast),
                ("the saturation of color_jitter", jitter.saturation),
            ];
            for (what, value) in factors {
                within(what, value, 0.0..=Self::MOST_JITTER, "0 to 10")?;
            }
            within("the hue of color_jitter", jitter.hue, 0.0..=0.5, "0 to 0.5")?;
        }
        if let Some(erasing) = self.random_erasing {
            within("p of random_erasing", erasing.p, 0.0..=1.0, SHARE)?;
            ordered("the scale of random_erasing", erasing.scale, 0.0..=1.0, SCALE)?;
            ordered("the ratio of random_erasing", erasing.ratio, RATIO, RATIO_WORDS)?;
            within(
                "the value of random_erasing",
                erasing.value,
                -1e6..=1e6,
                "a number",
            )?;
        }
        Ok(())
    }
}

/// At more extreme ratios, rectangles would be lines.
const RATIO: RangeInclusive<f64> = 0.01..=100.0;
const RATIO_WORDS: &str = "two numbers from 0.01 to 100, the smaller first";
const SCALE: &str = "two numbers from 0 to 1, the smaller first, the larger above 0";

fn within(
    what: &'static str,
    value: f64,
    range: RangeInclusive<f64>,
    must: &'static str,
) -> Result<(), AugmentationError> {
    // NaN is outside of every range.
    if range.contains(&value) {
        return Ok(());
    }
    Err(AugmentationError { what, value, must })
}

fn ordered(
    what: &'static str,
    [least, most]: [f64; 2],
    range: RangeInclusive<f64>,
    must: &'static str,
) -> Result<(), AugmentationError> {
    within(what, least, range.clone(), must)?;
    within(what, most, range, must)?;
    within(what, most, least..=f64::MAX, must)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Augmentation, String> {
        let read: Augmentation = serde_json::from_str(text).map_err(|error| error.to_string())?;
        read.check().map_err(|error| error.to_string())?;
        Ok(read)
    }

    #[test]
    fn omitted_parameters_use_defaults() {
        let read =
            read(r#"{"random_resized_crop":{},"rand_augment":{"magnitude":5},"random_erasing":{"p":1}}"#)
                .unwrap();
        assert_eq!(read.random_resized_crop, Some(RandomResizedCrop::default()));
        assert_eq!(
            read.rand_augment,
            Some(RandAugment {
                num_ops: 2,
                magnitude: 5
            })
        );
        assert_eq!(read.random_erasing.unwrap().scale, [0.02, 0.33]);
        assert_eq!((read.hflip, read.color_jitter), (0.0, None));
        assert!(Augmentation::default().is_none() && !read.is_none());
        assert_eq!(serde_json::to_string(&Augmentation::default()).unwrap(), "{}");
    }

    #[test]
    fn hostile_recipes_are_refused_with_what_may_be() {
        for (text, word) in [
            (r#"{"hflip":1.1}"#, "hflip is 1.1; it must be 0 to 1"),
            (r#"{"random_resized_crop":{"scale":[0.0,0.0]}}"#, "above 0"),
            (
                r#"{"random_resized_crop":{"scale":[0.9,0.1]}}"#,
                "the smaller first",
            ),
            (r#"{"random_resized_crop":{"ratio":[1e-9,1]}}"#, "0.01 to 100"),
            (r#"{"random_resized_crop":{"ratio":[-1,1]}}"#, "0.01 to 100"),
            (
                r#"{"rand_augment":{"num_ops":4000000000}}"#,
                "num_ops of rand_augment",
            ),
            (r#"{"rand_augment":{"magnitude":31}}"#, "0 to 30"),
            (r#"{"color_jitter":{"contrast":1e300}}"#, "0 to 10"),
            (r#"{"color_jitter":{"hue":0.6}}"#, "0 to 0.5"),
            (r#"{"random_erasing":{"p":-0.5}}"#, "p of random_erasing"),
            (
                r#"{"random_erasing":{"scale":[0.5,2]}}"#,
                "scale of random_erasing",
            ),
            (r#"{"random_erasing":{"value":1e9}}"#, "value of random_erasing"),
            (r#"{"vflip":0.5}"#, "unknown field `vflip`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        for hflip in [f64::NAN, f64::INFINITY] {
            let bad = Augmentation {
                hflip,
                ..Augmentation::default()
            };
            assert!(bad.check().is_err());
        }
    }
}
