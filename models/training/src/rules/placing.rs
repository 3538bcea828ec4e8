use crate::emitter::Emitter;
use frostline_graph::build;
use std::collections::BTreeSet;

/// Positions that were taken along an axis, none of them twice.
pub(super) struct Places {
    pub(super) axis: usize,
    /// The axis's length.
    pub(super) length: usize,
    /// The positions, in the order they were taken.
    pub(super) kept: Vec<usize>,
}

impl Places {
    pub(super) fn are_distinct(&self) -> bool {
        self.kept.iter().collect::<BTreeSet<_>>().len() == self.kept.len()
    }

    /// Puts what was taken back where it was, zeros elsewhere. `dims` is the tensor's shape, before and after.
    pub(super) fn put_back(&self, emit: &mut Emitter, tensor: &str, dims: &mut [usize]) -> String {
        let first = self.kept.first().copied().unwrap_or(0);
        let run = self.kept.iter().copied().eq(first..first + self.kept.len());
        let (before, after) = match run {
            true => (first, self.length - first - self.kept.len()),
            false => (0, usize::from(self.kept.len() < self.length)),
        };
        let padded = match (before, after) {
            (0, 0) => tensor.to_owned(),
            (before, after) => self.pad(emit, tensor, [before, after], dims.len()),
        };
        if let Some(length) = dims.get_mut(self.axis) {
            *length = self.length;
        }
        if run {
            return padded;
        }
        let place = |position| self.kept.iter().position(|kept| *kept == position);
        let order = (0..self.length).map(|position| place(position).unwrap_or(self.kept.len()));
        emit.gather(&padded, order, self.axis as i64)
    }

    /// Zeros before and after along the axis.
    fn pad(&self, emit: &mut Emitter, tensor: &str, [before, after]: [usize; 2], rank: usize) -> String {
        let at = |wanted: usize, size: usize| move |axis: usize| if axis == wanted { size as i64 } else { 0 };
        let pads = (0..rank)
            .map(at(self.axis, before))
            .chain((0..rank).map(at(self.axis, after)));
        let pads = emit.ints(pads);
        emit.node("Pad", &[tensor, &pads], vec![build::text("mode", "constant")])
    }
}
