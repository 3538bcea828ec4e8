use super::Probes;
use crate::onnx::NodeProto;

/// How many elements a node reads and writes, for a batch of the smaller probe size. Zero when a shape is unknown.
pub(crate) struct Sizes<'a> {
    pub(crate) node: &'a NodeProto,
    pub(crate) probes: &'a Probes,
}

impl<'a> Sizes<'a> {
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

    /// The elements a node without products takes in hand: what it writes, or, of pools and reductions, what it reads.
    pub(crate) fn touched(&self) -> f64 {
        self.output().max(self.input(0))
    }

    /// The size of an input's axis; 1 when it is unknown.
    pub(crate) fn axis(&self, slot: usize, axis: usize) -> f64 {
        let size = self.dims(slot).and_then(|dims| dims.get(axis));
        size.map_or(1.0, |&size| count(&[size]))
    }

    /// How many axes an input has; 0 when they are unknown.
    pub(crate) fn rank(&self, slot: usize) -> usize {
        self.dims(slot).map_or(0, <[usize]>::len)
    }

    /// The size of an input's last axis.
    pub(crate) fn last_axis(&self, slot: usize) -> f64 {
        self.axis(slot, self.rank(slot).saturating_sub(1))
    }
}

#[allow(clippy::cast_precision_loss)]
fn count(dims: &[usize]) -> f64 {
    dims.iter().map(|&dim| dim as f64).product()
}
