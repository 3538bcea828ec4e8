use super::{Context, Dim, Probes, RowUse, RowUses, Samples};
use crate::onnx::NodeProto;

/// A node with the row use of its inputs.
pub(crate) struct RowView<'a> {
    pub(crate) node: &'a NodeProto,
    pub(crate) probes: &'a Probes,
    pub(crate) uses: &'a RowUses,
}

impl<'a> RowView<'a> {
    pub(crate) fn input(&self, slot: usize) -> Option<RowUse> {
        self.node.input_name(slot).map(|name| self.uses.get(name))
    }

    /// The samples of an input that carries them.
    pub(crate) fn samples(&self, slot: usize) -> Option<Samples> {
        match self.input(slot)? {
            RowUse::Apart(samples) => Some(samples),
            RowUse::Same | RowUse::Mixed => None,
        }
    }

    /// Whether an input is left out or the same for every batch.
    pub(crate) fn is_parameter(&self, slot: usize) -> bool {
        matches!(self.input(slot), None | Some(RowUse::Same))
    }

    /// The samples of the first input, when all others are parameters.
    pub(crate) fn only_samples(&self) -> Option<Samples> {
        let alone = (1..self.node.input.len()).all(|slot| self.is_parameter(slot));
        alone.then(|| self.samples(0))?
    }

    pub(crate) fn dims(&self, slot: usize) -> Option<Vec<Dim>> {
        self.probes.dims(self.node.input_name(slot)?)
    }

    pub(crate) fn output_dims(&self) -> Option<Vec<Dim>> {
        self.probes.dims(self.node.output_name(0)?)
    }

    pub(crate) fn rank(&self, slot: usize) -> Option<usize> {
        self.probes
            .small_dims(self.node.input_name(slot)?)
            .map(<[usize]>::len)
    }

    /// The node's `axis` as one of the first input.
    pub(crate) fn axis(&self, default: i64) -> Option<usize> {
        self.context().axis(default).ok()
    }

    pub(crate) fn context(&self) -> Context<'a> {
        self.probes.context(self.node)
    }
}
