use crate::Matrix;
use frostline_tensor::{Interpolation, PixelSpec};
use std::ops::Range;

/// Crop position along one axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Axis {
    /// Length of the source in pixels.
    source: u32,
    /// Length after the resize in pixels.
    resized: u64,
    /// First pixel of the crop in the resized image.
    start: u64,
    /// Pixels of the crop that precede the image and are filled.
    pub(crate) before: u32,
    /// Number of crop pixels that the image covers.
    pub(crate) covered: u32,
    /// Radius of the filter in pixels, at the lower of both resolutions.
    support: f64,
}

/// Determines the axis to resize first. The intermediate image is rounded to bytes, so the order affects
/// values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    WidthFirst,
    HeightFirst,
}

impl Order {
    /// Returns the order that Pillow uses since version 13, determined by experiment. The height is resized
    /// first if it loses more than twice as many pixels as the width.
    pub(crate) fn new((height, width): (u32, u32), (to_height, to_width): (u64, u64)) -> Self {
        let lost = |from: u32, to: u64| i128::from(from) - i128::from(to);
        let down = lost(height, to_height);
        let across = lost(width, to_width);
        if down > 0 && down > 2 * across {
            Self::HeightFirst
        } else {
            Self::WidthFirst
        }
    }
}

/// Crop position along both axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Placement {
    pub(crate) order: Order,
    pub(crate) down: Axis,
    pub(crate) across: Axis,
}

impl Placement {
    /// Returns the placement for an image of `(height, width)`.
    pub(crate) fn new(spec: &PixelSpec, (height, width): (u32, u32)) -> Self {
        let resized @ (resized_height, resized_width) = spec.resized((height, width));
        let axis = |source, resized, crop| Axis::new(source, resized, crop, spec.interpolation);
        Self {
            order: Order::new((height, width), resized),
            down: axis(height, resized_height, spec.crop_height),
            across: axis(width, resized_width, spec.crop_width),
        }
    }

    /// Returns the matrix that maps a position in the crop to the position in the image.
    pub(crate) fn position_in_image(&self) -> Matrix {
        let Self { down, across, .. } = self;
        [
            across.scale(),
            0.0,
            across.source_start(),
            0.0,
            down.scale(),
            down.source_start(),
        ]
    }
}

/// Returns the radius of a filter in pixels.
pub(crate) fn support(interpolation: Interpolation) -> u32 {
    match interpolation {
        Interpolation::Nearest | Interpolation::Bilinear => 1,
        Interpolation::Bicubic => 2,
        Interpolation::Lanczos => 3,
    }
}

impl Axis {
    /// Places the crop like torchvision's `CenterCrop`, with Python's rounding of halves to even. If the
    /// image is smaller than the crop, it is padded like in timm's `CenterCropOrPad`.
    fn new(source: u32, resized: u64, crop: u32, interpolation: Interpolation) -> Self {
        let margin = resized.saturating_sub(u64::from(crop));
        let half = margin / 2;
        let covered = u32::try_from(resized).unwrap_or(u32::MAX).min(crop);
        Self {
            source,
            resized,
            start: half + u64::from(margin % 2 == 1 && half % 2 == 1),
            before: (crop - covered) / 2,
            covered,
            support: support(interpolation).into(),
        }
    }

    /// Returns the number of source pixels per resized pixel.
    fn scale(&self) -> f64 {
        f64::from(self.source) / self.resized.max(1) as f64
    }

    /// Returns the position of the crop's first edge in source coordinates. It is negative if the crop is filled there.
    fn source_start(&self) -> f64 {
        (self.start as f64 - f64::from(self.before)) * self.scale()
    }

    /// Returns the offset and length of the covered part in source coordinates.
    pub(crate) fn source_span(&self) -> (f64, f64) {
        let start = self.start as f64 * self.scale();
        let length = f64::from(self.covered) * self.scale();
        (start, length.min(f64::from(self.source) - start))
    }

    /// Returns the source pixels that affect the crop, including the filter's radius on both sides.
    pub(crate) fn source_pixels(&self) -> Range<u32> {
        let (start, length) = self.source_span();
        let reach = self.support * self.scale().max(1.0);
        let last = (start + length + reach).ceil().min(f64::from(self.source));
        // Both bounds are within the source and fit in `u32`.
        (start - reach).floor().max(0.0) as u32..last as u32
    }

    /// Returns the nearest source pixel of each covered pixel.
    pub(crate) fn nearest(&self) -> impl Iterator<Item = usize> + use<> {
        /// Number of additions before the crop. A larger number would be slow without a visible effect on
        /// rounding.
        const ADDED: u64 = 1 << 16;
        let scale = self.scale();
        let last = self.source.saturating_sub(1);
        let far = self.start.saturating_sub(ADDED);
        // Adds up steps like Pillow does, because rounding decides if a position is a whole number.
        let first = (far as f64 + 0.5) * scale;
        let places = std::iter::successors(Some(first), move |place| Some(place + scale));
        let covered = places
            .skip((self.start - far) as usize)
            .take(self.covered as usize);
        // Positions are within the source and fit in `u32`.
        covered.map(move |place| (place as u32).min(last) as usize)
    }
}
