use frostline_tensor::{Interpolation, PixelSpec};
use std::ops::Range;

/// Where a spec's crop lies in an image, along one axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Axis {
    /// Pixels the source has.
    source: u32,
    /// Pixels it has after the resize.
    resized: u64,
    /// First pixel of the crop after the resize.
    start: u64,
    /// First pixel of the crop that the image covers; those before are filled.
    pub(crate) before: u32,
    /// Pixels of the crop that the image covers.
    pub(crate) covered: u32,
    /// Pixels that the filter reaches on each side, of the smaller of source and resized.
    support: f64,
}

/// Which of the two is resized first. What lies between is rounded to bytes, so values depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    WidthFirst,
    HeightFirst,
}

impl Order {
    /// Pillow's since version 13, found out by trying: the height goes first where more than twice as much is lost of it.
    pub(crate) fn new((height, width): (u32, u32), (to_height, to_width): (u64, u64)) -> Self {
        let lost = |from: u32, to: u64| i128::from(from) - i128::from(to);
        let (down, across) = (lost(height, to_height), lost(width, to_width));
        if down > 0 && down > 2 * across {
            Self::HeightFirst
        } else {
            Self::WidthFirst
        }
    }
}

/// Both axes of a crop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Placement {
    pub(crate) order: Order,
    pub(crate) down: Axis,
    pub(crate) across: Axis,
}

impl Placement {
    /// Of an image of `height` x `width`.
    pub(crate) fn new(spec: &PixelSpec, (height, width): (u32, u32)) -> Self {
        let resized @ (resized_height, resized_width) = spec.resized((height, width));
        let axis = |source, resized, crop| Axis::new(source, resized, crop, spec.interpolation);
        Self {
            order: Order::new((height, width), resized),
            down: axis(height, resized_height, spec.crop_height),
            across: axis(width, resized_width, spec.crop_width),
        }
    }
}

/// Pixels that a filter reaches on each side.
pub(crate) fn support(interpolation: Interpolation) -> u32 {
    match interpolation {
        Interpolation::Nearest | Interpolation::Bilinear => 1,
        Interpolation::Bicubic => 2,
        Interpolation::Lanczos => 3,
    }
}

impl Axis {
    /// torchvision's `CenterCrop` (Python rounds halves to even); timm's `CenterCropOrPad` where the image is smaller.
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

    /// Pixels of the source for one after the resize.
    fn scale(&self) -> f64 {
        f64::from(self.source) / self.resized.max(1) as f64
    }

    /// What is covered in the source's own coordinates: offset and length.
    pub(crate) fn source_span(&self) -> (f64, f64) {
        let start = self.start as f64 * self.scale();
        let length = f64::from(self.covered) * self.scale();
        (start, length.min(f64::from(self.source) - start))
    }

    /// The source's pixels that the crop is computed from: its span, and what the filter reaches on both sides.
    pub(crate) fn touched(&self) -> Range<u32> {
        let (start, length) = self.source_span();
        let reach = self.support * self.scale().max(1.0);
        let last = (start + length + reach).ceil().min(f64::from(self.source));
        // Both lie within the source, whose sides are `u32`.
        (start - reach).floor().max(0.0) as u32..last as u32
    }

    /// The source's pixel that is nearest to each one that is covered.
    pub(crate) fn nearest(&self) -> impl Iterator<Item = usize> + use<> {
        /// Beyond it a rounding shows nothing, and adding takes long.
        const ADDED: u64 = 1 << 16;
        let (scale, last) = (self.scale(), self.source.saturating_sub(1));
        let far = self.start.saturating_sub(ADDED);
        // Added up as Pillow does: where a place is a whole number, its rounding decides.
        let first = (far as f64 + 0.5) * scale;
        let places = std::iter::successors(Some(first), move |place| Some(place + scale));
        let covered = places
            .skip((self.start - far) as usize)
            .take(self.covered as usize);
        // Within the source, whose sides are `u32`.
        covered.map(move |place| (place as u32).min(last) as usize)
    }
}
