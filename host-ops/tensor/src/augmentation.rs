//! How training images are varied at random: torchvision's transforms, by their names and parameters.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// What is done to an image, in this order; what is left out is not done. Each is torchvision's transform of that name on an 8-bit Pillow
/// image. Names are timm's where that has shorter ones.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augmentation {
    /// `RandomResizedCrop`, to the network's input, instead of the resize and the center crop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_resized_crop: Option<RandomResizedCrop>,
    /// `RandomHorizontalFlip`: how likely an image is mirrored, 0 to 1.
    #[serde(skip_serializing_if = "is_zero")]
    pub hflip: f64,
    /// `RandAugment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rand_augment: Option<RandAugment>,
    /// `ColorJitter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color_jitter: Option<ColorJitter>,
    /// `RandomErasing`. Its value is that after normalization; bytes of pixels hold it to half a level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_erasing: Option<RandomErasing>,
}

/// A part of the image of random size, shape and place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Least and most of the image's area, 0 to 1.
    pub scale: [f64; 2],
    /// Least and most width for a height of 1.
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

/// Some of 14 operations, chosen at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandAugment {
    /// How many, one after the other, at most [`Augmentation::MOST_OPS`].
    pub num_ops: u32,
    /// How strong each is, 0 to 30.
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

/// Factors around 1, each drawn evenly from `max(0, 1 - x)` to `1 + x`, in random order; 0 leaves that as it is.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColorJitter {
    /// Of the brightness.
    pub brightness: f64,
    /// Of the contrast.
    pub contrast: f64,
    /// Of the saturation.
    pub saturation: f64,
    /// Turns of the hue, at most so far either way, 0 to 0.5.
    pub hue: f64,
}

/// A rectangle of random size, shape and place that is painted over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomErasing {
    /// How likely, 0 to 1.
    pub p: f64,
    /// Least and most of the input's area, 0 to 1.
    pub scale: [f64; 2],
    /// Least and most height for a width of 1.
    pub ratio: [f64; 2],
    /// With what, after normalization.
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

/// One view of a data set: what is drawn for a sample depends on these and on its key, and on nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// What is done.
    pub augmentation: Augmentation,
    /// The job's.
    pub seed: u64,
    /// Which view it is: the epoch, or its remainder where views come again.
    pub number: u32,
}

/// An [`Augmentation`] that cannot be carried out, or that would take absurd time.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{what} is {value:?}; it must be {must}")]
pub struct AugmentationError {
    /// Which parameter.
    pub what: &'static str,
    /// What it is.
    pub value: f64,
    /// What it may be.
    pub must: &'static str,
}

impl Augmentation {
    /// The most operations of [`RandAugment`]: torchvision's is 2 and its paper's most 3, and a request must not
    /// buy any amount of time for one decoded image.
    pub const MOST_OPS: u32 = 8;
    /// The strengths of [`RandAugment`], torchvision's 31.
    pub const MAGNITUDES: RangeInclusive<u32> = 0..=30;
    /// The most a factor of [`ColorJitter`] strays from 1; at 10 nearly every pixel is black or white.
    const MOST_JITTER: f64 = 10.0;

    /// Whether nothing is done.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses what cannot be carried out.
    ///
    /// # Errors
    /// [`AugmentationError`], with the range.
    pub fn check(&self) -> Result<(), AugmentationError> {
        const SHARE: &str = "0 to 1";
        within("hflip", self.hflip, 0.0..=1.0, SHARE)?;
        if let Some(RandomResizedCrop { scale, ratio }) = self.random_resized_crop {
            ordered("the scale of random_resized_crop", scale, 0.0..=1.0, SCALE)?;
            ordered("the ratio of random_resized_crop", ratio, RATIO, RATIO_WORDS)?;
            // An area of 0 is never drawn, and the whole image would be.
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

/// Shapes beyond a hundred to one are lines.
const RATIO: RangeInclusive<f64> = 0.01..=100.0;
const RATIO_WORDS: &str = "two numbers from 0.01 to 100, the smaller first";
const SCALE: &str = "two numbers from 0 to 1, the smaller first, the larger above 0";

fn within(
    what: &'static str,
    value: f64,
    range: RangeInclusive<f64>,
    must: &'static str,
) -> Result<(), AugmentationError> {
    // What is no number is in no range.
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
    fn what_is_left_out_is_torchvisions_default_or_not_done() {
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
