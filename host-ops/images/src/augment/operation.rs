use super::Canvas;
use super::color;
use super::geometry::{self, Matrix};
use frostline_tensor::Augmentation;

/// One change of an image, as Pillow does it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operation {
    /// Each pixel from where `(a, b, c, d, e, f)` takes its place: `(a x + b y + c, d x + e y + f)`, the nearest, black outside.
    Affine(Matrix),
    /// `ImageEnhance.Brightness`: from black (0) over the image (1) on.
    Brightness(f32),
    /// `ImageEnhance.Color`: from gray.
    Color(f32),
    /// `ImageEnhance.Contrast`: from its mean.
    Contrast(f32),
    /// `ImageEnhance.Sharpness`: from a smoothed image.
    Sharpness(f32),
    /// Hues turned by so many turns.
    Hue(f64),
    /// `ImageOps.posterize`: only so many high bits of each value, at most 8.
    Posterize(u32),
    /// `ImageOps.solarize`: values from this on are inverted.
    Solarize(f32),
    /// `ImageOps.autocontrast`: each channel's least value becomes 0, its most 255.
    AutoContrast,
    /// `ImageOps.equalize`: all values as often, as far as that can be.
    Equalize,
}

impl Operation {
    /// How many operations `RandAugment` chooses from; the first is none.
    pub(super) const CHOICES: u32 = 14;

    /// The operation `which` of torchvision's `RandAugment`, in its order, at one of its 31 magnitudes, on an image of `width` x `height`.
    /// `None` for the first, which does nothing.
    pub fn of_rand_augment(
        which: u32,
        magnitude: u32,
        negative: bool,
        (width, height): (u32, u32),
    ) -> Option<Self> {
        let along = |end: f32| line(0.0, end, magnitude);
        let signed = |end: f32| if negative { -along(end) } else { along(end) };
        // The share of an image of 331 pixels that the paper's networks took.
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

    /// Changes `canvas`.
    pub(super) fn apply(self, canvas: &mut Canvas) {
        let pixels = &mut canvas.pixels;
        match self {
            Self::Affine(matrix) => geometry::transform(canvas, matrix),
            Self::Brightness(factor) => {
                color::look_up(
                    pixels,
                    &[color::table(|value| color::blend(0, value, factor)); 3],
                );
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
            Self::Hue(turns) => color::turn(pixels, turns),
            Self::Posterize(bits) => {
                let kept = 255_u8.checked_shl(8_u32.saturating_sub(bits)).unwrap_or(0);
                color::look_up(pixels, &[color::table(|value| value & kept); 3]);
            }
            Self::Solarize(from) => {
                let invert = |value: u8| if f32::from(value) < from { value } else { !value };
                color::look_up(pixels, &[color::table(invert); 3]);
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

/// `torch.linspace(start, end, 31)[index]`, in its single precision.
fn line(start: f32, end: f32, index: u32) -> f32 {
    let last = *Augmentation::MAGNITUDES.end();
    let step = (end - start) / last as f32;
    if index < last / 2 {
        start + step * index as f32
    } else {
        end - step * last.saturating_sub(index) as f32
    }
}
