use super::geometry::{self, Area, Matrix};
use super::random::Random;
use super::{Canvas, Operation, Rgb};
use crate::placement::Placement;
use crate::resize::{center, resized, to_planes};
use crate::{ImageError, RgbImage};
use frostline_tensor::{
    Augmentation, ChannelOrder, ColorJitter, PixelSpec, RandAugment, RandomErasing, RandomResizedCrop, View,
};

/// Random choices for a sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Draw {
    /// Area of the image to resize to the network's input. `None` resizes the short side and crops the
    /// center.
    pub crop: Option<Area>,
    /// True to mirror the image after resizing.
    pub flip: bool,
    /// Operations to apply after mirroring, in order.
    pub operations: Vec<Operation>,
    /// Area and color to fill at the end.
    pub erase: Option<(Area, [u8; 3])>,
}

/// Number of attempts to draw a rectangle that fits, equal to torchvision's.
const ATTEMPTS: usize = 10;

impl Draw {
    /// Draws the choices of `view` for the sample `key`, an image of `(width, height)`.
    pub fn new(view: &View, key: &str, (width, height): (u32, u32), spec: &PixelSpec) -> Self {
        let Augmentation {
            random_resized_crop,
            hflip,
            rand_augment,
            color_jitter,
            random_erasing,
        } = view.augmentation;
        let random = |transform| Random::new(view, key, transform);
        let mut operations = Vec::new();
        if let Some(rand_augment) = rand_augment {
            operations.extend(draw_rand_augment(rand_augment, random("rand_augment"), spec));
        }
        if let Some(jitter) = color_jitter {
            operations.extend(draw_color_jitter(jitter, random("color_jitter")));
        }
        Self {
            crop: random_resized_crop.map(|crop| cut_out(crop, random("random_resized_crop"), width, height)),
            flip: random("hflip").happens(hflip),
            operations,
            erase: random_erasing.and_then(|erasing| draw_erasing(erasing, random("random_erasing"), spec)),
        }
    }

    /// Applies the choices to `image`. The result has the shape `u8[3, crop_height, crop_width]`.
    ///
    /// # Errors
    /// Returns [`ImageError::Spec`] if the spec is invalid, and [`ImageError::Mismatch`] if the crop is not
    /// within the image.
    pub fn apply(&self, image: &RgbImage, spec: &PixelSpec) -> Result<Vec<u8>, ImageError> {
        let pixels = match self.crop {
            Some(area) => resized(image, area, spec)?,
            None => center(image, spec)?,
        };
        let width = spec.crop_width as usize;
        let mut canvas = Canvas { pixels, width };
        if self.flip {
            geometry::flip(&mut canvas);
        }
        for operation in &self.operations {
            operation.apply(&mut canvas);
        }
        if let Some((area, color)) = self.erase {
            geometry::fill(&mut canvas, area, color);
        }
        Ok(to_planes(&canvas.pixels, spec.channels))
    }

    /// Returns the matrix that maps a position in the result to the position in an image of `(width, height)` from
    /// which its pixel was taken. Positions are measured from the top left corner, so the first pixel's center is at
    /// 0.5.
    pub(crate) fn position_in_image(&self, (width, height): (u32, u32), spec: &PixelSpec) -> Matrix {
        let affine = self.operations.iter().filter_map(|operation| match operation {
            Operation::Affine(matrix) => Some(*matrix),
            _ => None,
        });
        let mirrored = [-1.0, 0.0, f64::from(spec.crop_width), 0.0, 1.0, 0.0];
        let flip = self.flip.then_some(mirrored);
        let crop = match self.crop {
            None => Placement::new(spec, (height, width)).position_in_image(),
            Some(area) => [
                f64::from(area.width) / f64::from(spec.crop_width),
                0.0,
                area.left.into(),
                0.0,
                f64::from(area.height) / f64::from(spec.crop_height),
                area.top.into(),
            ],
        };
        // The last operation is the first step from the result to the image.
        let steps = affine.rev().chain(flip).chain([crop]);
        steps.fold([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], geometry::composed)
    }
}

/// Draws like `RandomResizedCrop.get_params`.
fn cut_out(crop: RandomResizedCrop, mut random: Random, width: u32, height: u32) -> Area {
    let whole = f64::from(width) * f64::from(height);
    for _ in 0..ATTEMPTS {
        let (w, h) = sides(whole, crop.scale, crop.ratio, &mut random);
        if (1.0..=f64::from(width)).contains(&w) && (1.0..=f64::from(height)).contains(&h) {
            let w = w as u32;
            let h = h as u32;
            let top = random.below(height - h + 1);
            let left = random.below(width - w + 1);
            return Area {
                left,
                top,
                width: w,
                height: h,
            };
        }
    }
    // Largest area with an allowed ratio, in the center.
    let [narrow, wide] = crop.ratio;
    let ratio = f64::from(width) / f64::from(height);
    let side = |length: f64, most: u32| (length.round_ties_even() as u32).clamp(1, most);
    let (w, h) = if ratio < narrow {
        (width, side(f64::from(width) / narrow, height))
    } else if ratio > wide {
        (side(f64::from(height) * wide, width), height)
    } else {
        (width, height)
    };
    Area {
        left: (width - w) / 2,
        top: (height - h) / 2,
        width: w,
        height: h,
    }
}

/// Returns width and height of a random rectangle. The part of `whole` that it covers and the logarithm of
/// the aspect ratio are uniform. `libm` makes the logarithm and exponential reproducible across machines.
fn sides(whole: f64, scale: [f64; 2], ratio: [f64; 2], random: &mut Random) -> (f64, f64) {
    let area = whole * random.between(scale);
    let ratio = libm::exp(random.between(ratio.map(libm::log)));
    let side = |square: f64| square.sqrt().round_ties_even();
    (side(area * ratio), side(area / ratio))
}

/// Draws operations like `RandAugment.forward`.
fn draw_rand_augment(
    RandAugment { num_ops, magnitude }: RandAugment,
    mut random: Random,
    spec: &PixelSpec,
) -> Vec<Operation> {
    let sides = (spec.crop_width, spec.crop_height);
    (0..num_ops.min(Augmentation::MOST_OPS))
        .filter_map(|_| {
            let which = random.below(Operation::CHOICES);
            let negative = random.happens(0.5);
            Operation::of_rand_augment(which, magnitude, negative, sides)
        })
        .collect()
}

/// Draws factors like `ColorJitter.get_params`, and returns the operations in random order.
fn draw_color_jitter(jitter: ColorJitter, mut random: Random) -> Vec<Operation> {
    let mut factor = |stray: f64| {
        let factor = random.between([(1.0 - stray).max(0.0), 1.0 + stray]);
        (stray > 0.0).then_some(factor as f32)
    };
    let brightness = factor(jitter.brightness);
    let contrast = factor(jitter.contrast);
    let saturation = factor(jitter.saturation);
    let turn = random.between([-jitter.hue, jitter.hue]);
    let mut all = [
        brightness.map(Operation::Brightness),
        contrast.map(Operation::Contrast),
        saturation.map(Operation::Color),
        (jitter.hue > 0.0).then_some(Operation::Hue(turn)),
    ];
    // Fisher-Yates shuffle.
    for left in (1..all.len()).rev() {
        all.swap(left, random.below(left as u32 + 1) as usize);
    }
    all.into_iter().flatten().collect()
}

/// Draws like `RandomErasing`. Returns the area, if any, and the color before normalization.
fn draw_erasing(erasing: RandomErasing, mut random: Random, spec: &PixelSpec) -> Option<(Area, Rgb)> {
    if !random.happens(erasing.p) {
        return None;
    }
    let width = spec.crop_width;
    let height = spec.crop_height;
    let whole = f64::from(width) * f64::from(height);
    for _ in 0..ATTEMPTS {
        // The ratio is height to width, in contrast to the crop.
        let (h, w) = sides(whole, erasing.scale, erasing.ratio, &mut random);
        if h < f64::from(height) && w < f64::from(width) {
            let w = w as u32;
            let h = h as u32;
            let top = random.below(height - h + 1);
            let left = random.below(width - w + 1);
            return Some((
                Area {
                    left,
                    top,
                    width: w,
                    height: h,
                },
                color(erasing.value, spec),
            ));
        }
    }
    None
}

/// Returns the pixel whose normalized value is closest to `value`.
fn color(value: f64, spec: &PixelSpec) -> Rgb {
    let mut color = [0; 3];
    for ((color, mean), std) in color.iter_mut().zip(spec.mean).zip(spec.std) {
        // The conversion saturates values out of range.
        *color = ((value * f64::from(std) + f64::from(mean)) * 255.0).round() as u8;
    }
    if spec.channels == ChannelOrder::Bgr {
        color.reverse();
    }
    color
}
