use super::Probes;
use crate::onnx::NodeProto;

/// Number of elements that a node reads and writes at the smaller probe size. Unknown shapes count as zero.
pub(crate) struct NodeSizes<'a> {
    pub(crate) node: &'a NodeProto,
    pub(crate) probes: &'a Probes,
}

impl<'a> NodeSizes<'a> {
    fn dims(&self, slot: usize) -> Option<&'a [usize]> {
        self.probes.small_dims(self.node.input_name(slot)?)
    }

    pub(crate) fn input(&self, slot: usize) -> f64 {
        self.dims(slot).map_or(0.0, count)
    }

    pub(crate) fn output(&self) -> f64 {
        let name = self.node.output_name(0);
        name.and_then(|name| self.probes.small_dims(name))
            .map_or(0.0, count)
    }

    /// Returns the number of elements that are processed by a node without products. This is the size of the
    /// output or, for pools and reductions, of the input.
    pub(crate) fn touched(&self) -> f64 {
        self.output().max(self.input(0))
    }

    /// Returns the size of an input's axis, or 1 if it is unknown.
    pub(crate) fn axis(&self, slot: usize, axis: usize) -> f64 {
        let size = self.dims(slot).and_then(|dims| dims.get(axis));
        size.map_or(1.0, |&size| count(&[size]))
    }

    /// Returns the number of axes of an input, or 0 if it is unknown.
    pub(crate) fn rank(&self, slot: usize) -> usize {
        self.dims(slot).map_or(0, <[usize]>::len)
    }

    /// Returns the size of the last axis of the input.
    pub(crate) fn last_axis(&self, slot: usize) -> f64 {
        self.axis(slot, self.rank(slot).saturating_sub(1))
    }
}

#[allow(clippy::cast_precision_loss)]
fn count(dims: &[usize]) -> f64 {
    dims.iter().map(|&dim| dim as f64).product()
}
