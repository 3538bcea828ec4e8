use super::{Context, Dim, Probes, RowUse, RowUses, SampleAxis};
use crate::onnx::NodeProto;

/// Node with access to the row use of the inputs.
pub(crate) struct RowView<'a> {
    pub(crate) node: &'a NodeProto,
    pub(crate) probes: &'a Probes,
    pub(crate) uses: &'a RowUses,
    /// Treats positions as samples. Used for operators that only move elements.
    pub(crate) moves_positions: bool,
}

impl<'a> RowView<'a> {
    pub(crate) fn input(&self, slot: usize) -> Option<RowUse> {
        let found = self.node.input_name(slot).map(|name| self.uses.get(name));
        match found {
            Some(RowUse::Position(position)) if self.moves_positions => {
                Some(RowUse::PerSample(SampleAxis::plain(position.axis)))
            }
            other => other,
        }
    }

    /// Returns the sample axis of an input, or `None` if the samples are mixed or missing.
    pub(crate) fn samples(&self, slot: usize) -> Option<SampleAxis> {
        match self.input(slot)? {
            RowUse::PerSample(samples) => Some(samples),
            RowUse::Independent | RowUse::Position(_) | RowUse::Index(_) | RowUse::Mixed => None,
        }
    }

    /// Returns true if an input is omitted or the same for every batch.
    pub(crate) fn is_parameter(&self, slot: usize) -> bool {
        matches!(self.input(slot), None | Some(RowUse::Independent))
    }

    /// Returns the sample axis of the first input if all other inputs are parameters.
    pub(crate) fn only_samples(&self) -> Option<SampleAxis> {
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

    /// Returns the node's `axis` as an axis of the first input.
    pub(crate) fn axis(&self, default: i64) -> Option<usize> {
        self.context().axis(default).ok()
    }

    pub(crate) fn context(&self) -> Context<'a> {
        self.probes.context(self.node)
    }
}
