//! Analysis shared by cutting, slicing and head replacement.

use crate::kinds::{Kinds, reads_shape};
use crate::onnx::NodeProto;
use crate::values::{Dim, Probes, RowUse, RowUses, SampleAxis};
use crate::{GraphError, Links, Model};
use std::collections::HashSet;

/// Model with the inferred kinds, shapes and sample axes.
pub(crate) struct Analysis<'a> {
    pub(crate) model: &'a Model,
    pub(crate) kinds: Kinds,
    pub(crate) probes: Probes,
    pub(crate) rows: RowUses,
    pub(crate) links: Links<'a>,
}

impl<'a> Analysis<'a> {
    /// Analyzes `model`.
    ///
    /// # Errors
    /// Returns [`GraphError::Shape`] if the inputs of a node do not fit its operator.
    pub(crate) fn run(model: &'a Model) -> Result<Self, GraphError> {
        let mut probes = Probes::start(model)?;
        let mut rows = RowUses::start(model.inputs().map(|input| input.name.as_str()));
        for node in model.nodes() {
            probes.step(node)?;
            rows.step(node, &probes);
        }
        Ok(Self {
            model,
            kinds: Kinds::infer(model),
            probes,
            rows,
            links: Links::of_model(model),
        })
    }

    /// Returns the indices of the nodes through which data flows to `to`, without nodes before `from`.
    pub(crate) fn data_path(&self, to: &str, from: Option<&str>) -> HashSet<usize> {
        let end = Some(to).filter(|to| Some(*to) != from && self.kinds.is_data(to));
        self.links.upstream(end, |node| {
            let inputs = self.data_inputs(node);
            inputs.filter(|name| Some(*name) != from).collect()
        })
    }

    /// Returns the inputs whose elements a node reads and that depend on the elements of the network's input.
    pub(crate) fn data_inputs<'n>(&self, node: &'n NodeProto) -> impl Iterator<Item = &'n str> {
        let names = if reads_shape(node) {
            Vec::new()
        } else {
            crate::form::read_names(node)
        };
        let data: Vec<&str> = names
            .into_iter()
            .filter(|name| self.kinds.is_data(name))
            .collect();
        data.into_iter()
    }

    /// Returns the shape per sample if the network can be split at this value. The first axis must be the
    /// batch, all other axes must be fixed, and the samples must be independent up to this point.
    pub(crate) fn row_of(&self, name: &str) -> Option<Vec<usize>> {
        if self.rows.get(name) != RowUse::PerSample(SampleAxis::plain(0)) {
            return None;
        }
        let dims = self.probes.dims(name)?;
        match dims.split_first()? {
            (Dim::Batch(1), row) => row.iter().map(Dim::fixed).collect(),
            _ => None,
        }
    }
}
