//! Where the samples of a batch lie inside each value, and whether they stay independent of each other.
//!
//! A value carries its samples along one axis of size `outer * batch * inner`: attention, for example, flattens
//! `[tokens, batch, heads, width]` to `[tokens, batch * heads, width]`. Reshapes keep the row-major order of elements, so
//! the batch axis can be followed through them.

use super::Dim;
use std::collections::HashMap;

/// The axis that carries the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Samples {
    pub(crate) axis: usize,
    /// Steps of the axis outside the batch.
    pub(crate) outer: usize,
    /// Steps of the axis inside the batch.
    pub(crate) inner: usize,
}

impl Samples {
    /// The batch itself as an axis.
    pub(crate) fn plain(axis: usize) -> Self {
        Self {
            axis,
            outer: 1,
            inner: 1,
        }
    }

    pub(crate) fn on(self, axis: usize) -> Self {
        Self { axis, ..self }
    }

    /// Whether a value of `dims` has its batch along exactly this axis.
    pub(crate) fn lie_in(self, dims: &[Dim]) -> bool {
        let matches = |(axis, dim): (usize, &Dim)| match dim {
            Dim::Batch(times) => axis == self.axis && self.outer.checked_mul(self.inner) == Some(*times),
            Dim::Fixed(_) => axis != self.axis,
        };
        self.axis < dims.len() && dims.iter().enumerate().all(matches)
    }

    /// How many steps the row-major order of `dims` takes outside the batch.
    pub(crate) fn steps_outside(self, dims: &[Dim]) -> Option<usize> {
        fixed_product(dims.iter().take(self.axis))?.checked_mul(self.outer)
    }

    /// How many it takes inside the batch.
    pub(crate) fn steps_inside(self, dims: &[Dim]) -> Option<usize> {
        fixed_product(dims.iter().skip(self.axis + 1))?.checked_mul(self.inner)
    }

    /// The place of the batch in `dims` when that many row-major steps lie outside it.
    pub(crate) fn placed(dims: &[Dim], outside: usize) -> Option<Self> {
        let axis = dims.iter().position(|dim| matches!(dim, Dim::Batch(_)))?;
        let Some(Dim::Batch(times)) = dims.get(axis) else {
            return None;
        };
        let before = fixed_product(dims.iter().take(axis))?;
        let outer = (before > 0 && outside.is_multiple_of(before)).then(|| outside / before)?;
        let inner = (outer > 0 && times.is_multiple_of(outer)).then(|| times / outer)?;
        Some(Self { axis, outer, inner })
    }
}

/// The product of axes that do not depend on the batch.
fn fixed_product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Option<usize> {
    let mut sizes = dims.into_iter().map(|dim| dim.fixed());
    sizes.try_fold(1_usize, |all, size| all.checked_mul(size?))
}

/// How a value's elements depend on the samples of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowUse {
    /// Not at all, and neither on how many there are.
    Same,
    /// Each sample's part depends on that sample only.
    Apart(Samples),
    /// In a way that is not known to keep samples apart.
    Mixed,
}

/// How every value depends on the samples, filled node by node.
#[derive(Debug, Clone)]
pub(crate) struct RowUses(HashMap<String, RowUse>);

impl RowUses {
    /// Knows the inputs: the batch is their first axis.
    pub(crate) fn start<'a>(inputs: impl Iterator<Item = &'a str>) -> Self {
        let apart = RowUse::Apart(Samples::plain(0));
        Self(inputs.map(|name| (name.to_owned(), apart)).collect())
    }

    pub(crate) fn insert(&mut self, name: &str, row_use: RowUse) {
        self.0.insert(name.to_owned(), row_use);
    }

    /// How a value depends on the samples; what no node produces is a weight.
    pub(crate) fn get(&self, name: &str) -> RowUse {
        self.0.get(name).copied().unwrap_or(RowUse::Same)
    }
}
