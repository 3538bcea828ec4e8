//! Position and independence of the samples in values.
//!
//! A single axis contains the samples. The size of the axis is `outer * batch * inner`. For example,
//! attention flattens `[tokens, batch, heads, width]` to `[tokens, batch * heads, width]`. Reshapes preserve
//! the row-major order of elements, so the batch axis can be followed through them.

use super::Dim;
use std::collections::HashMap;

/// The axis that contains the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SampleAxis {
    pub(crate) axis: usize,
    /// Factor of the axis size outside the batch.
    pub(crate) outer: usize,
    /// Factor of the axis size inside the batch.
    pub(crate) inner: usize,
}

impl SampleAxis {
    /// Returns an axis that is exactly the batch.
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

    /// Returns true if the batch is along this axis of `dims`, with the same factors, and along no other
    /// axis.
    pub(crate) fn lie_in(self, dims: &[Dim]) -> bool {
        self.axis < dims.len()
            && dims.iter().enumerate().all(|(axis, dim)| match dim {
                Dim::Batch(times) => axis == self.axis && self.outer.checked_mul(self.inner) == Some(*times),
                Dim::Fixed(_) => axis != self.axis,
            })
    }

    /// Returns the number of steps outside the batch in the row-major order of `dims`.
    pub(crate) fn steps_outside(self, dims: &[Dim]) -> Option<usize> {
        fixed_product(dims.iter().take(self.axis))?.checked_mul(self.outer)
    }

    /// Returns the number of steps inside the batch in the row-major order of `dims`.
    pub(crate) fn steps_inside(self, dims: &[Dim]) -> Option<usize> {
        fixed_product(dims.iter().skip(self.axis + 1))?.checked_mul(self.inner)
    }

    /// Returns the position of the batch in `dims`, given the number of row-major steps outside it.
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

/// Returns the product of axes that do not depend on the batch.
fn fixed_product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Option<usize> {
    let mut sizes = dims.into_iter().map(|dim| dim.fixed());
    sizes.try_fold(1_usize, |all, size| all.checked_mul(size?))
}

/// Dependency of elements on the samples of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowUse {
    /// Does not depend on the samples or on the batch size.
    Independent,
    /// The elements of a sample, at this position, depend only on that sample.
    PerSample(SampleAxis),
    /// Elements identify their sample, and do not depend on the contents of samples.
    Position(SamplePosition),
    /// Vectors along the last axis. The first element is the position of the sample on this axis, and the others
    /// depend on that sample.
    Index(usize),
    /// Samples may be mixed.
    Mixed,
}

/// Integers that identify the sample: for the sample `s`, from `step * s` to `step * s + spread - 1`. Exporters compute
/// them with `Range` to look up elements of a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SamplePosition {
    /// The axis that contains the samples.
    pub(crate) axis: usize,
    pub(crate) step: i64,
    pub(crate) spread: i64,
}

/// Row use of all values, filled node by node.
#[derive(Debug, Clone)]
pub(crate) struct RowUses {
    uses: HashMap<String, RowUse>,
    /// Exclusive upper bounds of integers from 0 that do not depend on the samples.
    bounds: HashMap<String, i64>,
}

impl RowUses {
    /// Adds the inputs. The first axis is the batch.
    pub(crate) fn start<'a>(inputs: impl Iterator<Item = &'a str>) -> Self {
        let apart = RowUse::PerSample(SampleAxis::plain(0));
        Self {
            uses: inputs.map(|name| (name.to_owned(), apart)).collect(),
            bounds: HashMap::new(),
        }
    }

    pub(crate) fn insert(&mut self, name: &str, row_use: RowUse) {
        self.uses.insert(name.to_owned(), row_use);
    }

    pub(crate) fn limit(&mut self, name: &str, bound: i64) {
        self.bounds.insert(name.to_owned(), bound);
    }

    /// Returns the exclusive upper bound of integers from 0, if it is known.
    pub(crate) fn bound(&self, name: &str) -> Option<i64> {
        self.bounds.get(name).copied()
    }

    /// Returns the row use of a value. Values without a producer are weights.
    pub(crate) fn get(&self, name: &str) -> RowUse {
        self.uses.get(name).copied().unwrap_or(RowUse::Independent)
    }
}
