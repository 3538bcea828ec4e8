use super::Canvas;
use super::color;
use super::geometry::{self, Matrix};
use frostline_tensor::Augmentation;

/// An image operation with the same result as Pillow's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operation {
    /// Affine transform. The pixel at `(x, y)` is copied from `(a x + b y + c, d x + e y + f)`, rounded to
    /// the nearest pixel. Pixels from outside of the image are black.
    Affine(Matrix),
    /// `ImageEnhance.Brightness`. 0 is black, 1 is the image.
    Brightness(f32),
    /// `ImageEnhance.Color`. 0 is the gray image, 1 is the image.
    Color(f32),
    /// `ImageEnhance.Contrast`. 0 is the mean of the gray image, 1 is the image.
    Contrast(f32),
    /// `ImageEnhance.Sharpness`. 0 is a smoothed image, 1 is the image.
    Sharpness(f32),
    /// Rotation of hues, in turns.
    Hue(f64),
    /// `ImageOps.posterize`. Keeps this number of high bits per value, up to 8.
    Posterize(u32),
    /// `ImageOps.solarize`. Inverts values greater than or equal to the threshold.
    Solarize(f32),
    /// `ImageOps.autocontrast`. Scales each channel to the range 0 to 255.
    AutoContrast,
    /// `ImageOps.equalize`. Equalizes the histogram of each channel.
    Equalize,
}

impl Operation {
    /// Number of operations in `RandAugment`, including the identity.
    pub(super) const CHOICES: u32 = 14;

    /// Returns the operation with index `which` in torchvision's `RandAugment`, for one of 31 magnitudes and
    /// an image of `(width, height)`. Returns `None` for the identity (index 0) and for unknown indices.
    pub fn of_rand_augment(
        which: u32,
        magnitude: u32,
        negative: bool,
        (width, height): (u32, u32),
    ) -> Option<Self> {
        let along = |end: f32| line(0.0, end, magnitude);
        let signed = |end: f32| if negative { -along(end) } else { along(end) };
        // The paper translates images with 331 pixels by up to 150 pixels.
        let shift = |side: u32| f64::from(signed((150.0 / 331.0 * f64::from(side)) as f32).trunc());
        let factor = || 1.0 + signed(0.9);
        Some(match which {
            1 => Self::Affine([1.0, f64::from(signed(0.3)), 0.0, 0.0, 1.0, 0.0]),
            2 => Self::Affine([1.0, 0.0, 0.0, f64::from(signed(0.3)), 1.0, 0.0]),
            3 => Self::Affine([1.0, 0.0, -shift(width), 0.0, 1.0, 0.0]),
            4 => Self::Affine([1.0, 0.0, 0.0, 0.0, 1.0, -shift(height)]),
            5 => Self::Affine(geometry::rotation(signed(30.0).into(), width, height)),
            6 => Self::Brightness(factor()),
            7 => Self::Color(factor()),
            8 => Self::Contrast(factor()),
            9 => Self::Sharpness(factor()),
            10 => Self::Posterize(8 - (f64::from(magnitude) / 7.5).round_ties_even() as u32),
            11 => Self::Solarize(line(255.0, 0.0, magnitude)),
            12 => Self::AutoContrast,
            13 => Self::Equalize,
            _ => return None,
        })
    }

    /// Applies the operation to `canvas`.
    pub(super) fn apply(self, canvas: &mut Canvas) {
        let pixels = &mut canvas.pixels;
        match self {
            Self::Affine(matrix) => geometry::transform(canvas, matrix),
            Self::Brightness(factor) => {
                color::look_up(pixels, &[color::table(|value| color::blend(0, value, factor)); 3]);
            }
            Self::Contrast(factor) => {
                let mean = color::mean(pixels);
                color::look_up(
                    pixels,
                    &[color::table(|value| color::blend(mean, value, factor)); 3],
                );
            }
            Self::Color(factor) => color::saturate(pixels, factor),
            Self::Sharpness(factor) => color::sharpen(canvas, factor),
            Self::Hue(turns) => color::rotate_hue(pixels, turns),
            Self::Posterize(bits) => {
                let kept = 255_u8.checked_shl(8_u32.saturating_sub(bits)).unwrap_or(0);
                color::look_up(pixels, &[color::table(|value| value & kept); 3]);
            }
            Self::Solarize(from) => {
                color::look_up(
                    pixels,
                    &[color::table(|value| if f32::from(value) < from { value } else { !value }); 3],
                );
            }
            Self::AutoContrast => {
                let tables = color::histograms(pixels).map(color::stretched);
                color::look_up(pixels, &tables);
            }
            Self::Equalize => {
                let tables = color::histograms(pixels).map(color::equalized);
                color::look_up(pixels, &tables);
            }
        }
    }
}

/// Computes `torch.linspace(start, end, 31)[index]` in single precision.
fn line(start: f32, end: f32, index: u32) -> f32 {
    let last = *Augmentation::MAGNITUDES.end();
    let step = (end - start) / last as f32;
    if index < last / 2 {
        start + step * index as f32
    } else {
        end - step * last.saturating_sub(index) as f32
    }
}
