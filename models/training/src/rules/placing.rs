use crate::emitter::Emitter;
use frostline_graph::build;
use std::collections::BTreeSet;

/// Selected positions along an axis.
pub(super) struct Selection {
    pub(super) axis: usize,
    /// Length of the axis.
    pub(super) length: usize,
    /// Selected positions in order of selection.
    pub(super) positions: Vec<usize>,
}

impl Selection {
    pub(super) fn are_distinct(&self) -> bool {
        self.positions.iter().collect::<BTreeSet<_>>().len() == self.positions.len()
    }

    /// Moves the selected elements back to the original positions, with zeros elsewhere. `dims` is the shape
    /// of the tensor before and after. The positions must be distinct.
    pub(super) fn put_back(&self, emit: &mut Emitter, tensor: &str, dims: &mut [usize]) -> String {
        let first = self.positions.first().copied().unwrap_or(0);
        let run = self
            .positions
            .iter()
            .copied()
            .eq(first..first + self.positions.len());
        let (before, after) = match run {
            true => (first, self.length - first - self.positions.len()),
            false => (0, usize::from(self.positions.len() < self.length)),
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
        let order = (0..self.length).map(|position| {
            self.positions
                .iter()
                .position(|kept| *kept == position)
                .unwrap_or(self.positions.len())
        });
        emit.gather(&padded, order, self.axis as i64)
    }

    /// Pads the axis with zeros.
    fn pad(&self, emit: &mut Emitter, tensor: &str, [before, after]: [usize; 2], rank: usize) -> String {
        let pads = [before, after].into_iter().flat_map(|size| {
            let axes = 0..rank;
            axes.map(move |axis| if axis == self.axis { size as i64 } else { 0 })
        });
        let pads = emit.ints(pads);
        emit.node("Pad", &[tensor, &pads], vec![build::text("mode", "constant")])
    }
}
