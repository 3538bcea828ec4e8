//! Rows through operators that move, join, cut or repeat elements.

use super::{Rows, Samples, View};
use crate::infer::{axis_of, layout};
use crate::probes::Dim;

/// The product of axes that do not depend on the batch.
fn fixed_product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Option<usize> {
    dims.into_iter().try_fold(1_usize, |all, dim| match dim {
        Dim::Fixed(size) => all.checked_mul(*size),
        Dim::Batch(_) => None,
    })
}

/// How many steps the row-major order takes outside the batch.
pub(crate) fn steps_outside(dims: &[Dim], samples: Samples) -> Option<usize> {
    fixed_product(dims.iter().take(samples.axis))?.checked_mul(samples.outer)
}

/// The place of the batch in `dims` when that many row-major steps lie outside it.
fn place_batch(dims: &[Dim], outside: usize) -> Option<Samples> {
    let axis = dims.iter().position(|dim| matches!(dim, Dim::Batch(_)))?;
    let Some(Dim::Batch(times)) = dims.get(axis) else {
        return None;
    };
    let before = fixed_product(dims.iter().take(axis))?;
    let outer = (before > 0 && outside.is_multiple_of(before)).then(|| outside / before)?;
    let inner = (outer > 0 && times.is_multiple_of(outer)).then(|| times / outer)?;
    Some(Samples { axis, outer, inner })
}

impl View<'_> {
    /// Steps of the row-major order outside the batch of the first input.
    pub(super) fn outside(&self) -> Option<usize> {
        steps_outside(&self.dims(0)?, self.samples(0)?)
    }

    /// Operators that keep the row-major order of elements.
    pub(super) fn regrouped(&self) -> Option<Samples> {
        place_batch(&self.output_dims()?, self.outside()?)
    }

    pub(super) fn transpose(&self) -> Option<Samples> {
        let samples = self.samples(0)?;
        let order = layout::permutation(&self.context(), self.rank(0)?).ok()?;
        order
            .iter()
            .position(|&axis| axis == samples.axis)
            .map(|axis| samples.on(axis))
    }

    pub(super) fn concat(&self) -> Option<Samples> {
        let samples = self.samples(0)?;
        let axis = axis_of(self.node.int("axis").unwrap_or(1), self.rank(0)?).ok()?;
        let alike = (0..self.node.input.len()).all(|slot| self.samples(slot) == Some(samples));
        (alike && axis != samples.axis).then_some(samples)
    }

    pub(super) fn split(&self) -> Option<Samples> {
        let samples = self.samples(0)?;
        let axis = axis_of(self.node.int("axis").unwrap_or(0), self.rank(0)?).ok()?;
        (axis != samples.axis).then_some(samples)
    }

    /// A slice may name the batch axis as long as it takes all of it.
    pub(super) fn slice(&self) -> Option<Samples> {
        let samples = self.samples(0)?;
        let cuts = layout::slice_cuts(&self.context()).ok()?;
        let whole = |cut: &layout::Cut| cut.axis != samples.axis || (cut.start == 0 && cut.step == 1);
        if !cuts.iter().all(whole) {
            return None;
        }
        self.untouched_axis()
    }

    pub(super) fn gather(&self) -> Option<Samples> {
        let axis = axis_of(self.node.int("axis").unwrap_or(0), self.rank(0)?).ok()?;
        let index_rank = self.rank(1)?;
        match (self.input(0)?, self.input(1)?) {
            (Rows::Apart(samples), Rows::Same) if samples.axis < axis => Some(samples),
            (Rows::Apart(samples), Rows::Same) if samples.axis > axis => {
                Some(samples.on(samples.axis + index_rank - 1))
            }
            (Rows::Same, Rows::Apart(samples)) => Some(samples.on(samples.axis + axis)),
            _ => None,
        }
    }

    pub(super) fn pad(&self) -> Option<Samples> {
        let samples = self.samples(0)?;
        let pads = layout::pads(&self.context(), self.rank(0)?).ok()?;
        (pads.get(samples.axis) == Some(&(0, 0)) && self.is_parameter(2)).then_some(samples)
    }

    /// Operators that work along each axis by itself, and leave the samples' axis as it is.
    pub(super) fn untouched_axis(&self) -> Option<Samples> {
        let samples = self.samples(0)?;
        let (before, after) = (self.dims(0)?, self.output_dims()?);
        (before.len() == after.len() && before.get(samples.axis) == after.get(samples.axis))
            .then_some(samples)
    }

    /// Broadcasts its input; one without samples (a class token) becomes the same for each.
    pub(super) fn expand(&self) -> Option<Samples> {
        match self.input(0)? {
            Rows::Apart(samples) => {
                Some(samples.on(samples.axis + self.output_dims()?.len().checked_sub(self.rank(0)?)?))
            }
            Rows::Same => self.filled(),
            Rows::Mixed => None,
        }
    }

    /// A value without samples, repeated along the batch.
    pub(super) fn filled(&self) -> Option<Samples> {
        self.output_dims()?
            .iter()
            .position(|dim| *dim == Dim::Batch(1))
            .map(Samples::plain)
    }
}
